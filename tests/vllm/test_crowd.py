"""A crowd's requests and figures, and the turns of engines that sleep.

No engine starts.
"""

from __future__ import annotations

import gzip
import math
import pathlib
import tempfile
import threading
import unittest

from serving_site import Served, stage  # sets the path, too
import crowd
from real_trace import Request
from sleepers import Sleepers


class Requests(unittest.TestCase):
    def test_every_second_model_is_asked_in_its_part_of_the_trace(self) -> None:
        path = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory()), "trace.gz"
        )
        rows = ["timestamp_s,model,input_tokens,output_tokens"]
        rows += [f"{t},{m},5,7" for t, m in enumerate("aaaabbbccd")]
        path.write_bytes(gzip.compress("\n".join(rows).encode()))
        found = crowd.requests_of(path, ["x", "y"], 0.5, (2, 8))
        self.assertEqual(
            [(r.at_s, r.model, len(r.prompt), r.output_tokens) for r in found],
            [(0, "x", 5, 7), (2, "x", 5, 7), (10, "y", 5, 7)],
        )


class Summary(unittest.TestCase):
    def test_who_was_not_answered_is_late(self) -> None:
        request = Request(0, "x", [1], 1)
        outcomes = [
            crowd.Outcome(request, [1], ttft, "") for ttft in (0.5, 3, 7)
        ]
        outcomes.append(crowd.Outcome(request, [], math.inf, "429"))
        found = crowd.summary(outcomes)
        self.assertEqual((found["requests"], found["answered"]), (4, 3))
        self.assertEqual((found["ttft_p50_s"], found["ttft_p99_s"]), (3, 7))
        self.assertEqual(found["within_1_s"], 25)
        self.assertEqual(found["within_20_s"], 75)


class Recorded(Sleepers):
    """Sleepers that note what is posted; two of three models are awake."""

    def __init__(self, folder: pathlib.Path) -> None:
        engines = [Served(name, name, {}) for name in "abc"]
        super().__init__(folder, folder, {}, engines, room=2)
        self.posted: list[str] = []
        for name in "ab":
            self._note_awake(name)

    def _post(self, model: str, path: str) -> None:
        self.posted.append(model + path.partition("?")[0])


class Turns(unittest.TestCase):
    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.site = Recorded(pathlib.Path(folder))

    def ask(self, model: str) -> None:
        with self.site.port_for(model) as port:
            self.assertEqual(port, self.site.port_of[model])

    def test_the_one_that_was_asked_last_stays(self) -> None:
        self.ask("a")
        self.ask("c")
        self.assertEqual(self.site.posted, ["b/sleep", "c/wake_up"])

    def test_a_model_gets_its_turn_while_the_others_are_never_idle(self) -> None:
        with self.site.port_for("a"), self.site.port_for("b"):
            waits, late = (
                threading.Thread(target=self.ask, args=(name,), daemon=True)
                for name in "ca"
            )
            waits.start()
            self.assertTrue(
                stage.eventually(lambda: self.site._leaving == "a", 60)
            )
            late.start()
            self.assertEqual(self.site.posted, [])
        for thread in waits, late:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(self.site.posted[:2], ["a/sleep", "c/wake_up"])
        self.assertEqual(self.site.posted[-1], "a/wake_up")


if __name__ == "__main__":
    unittest.main()
