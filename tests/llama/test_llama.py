"""Stock llama.cpp on the emulated device, as GPT4All's wheel has it: its KV is
recognised by the functions on its stack and leased as whole slabs.

The device skips its kernels, so that its tokens mean nothing.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "torch"))

import machine  # noqa: E402
import tiny_gguf  # noqa: E402
from machine import BUILD, EMUCUDA, SHIM, SLAB, LineProcess  # noqa: E402

TOKENS = 2 * SLAB // tiny_gguf.KV_BYTES  # fill two slabs


class Llama(LineProcess):
    def __init__(
        self, environment: dict[str, str], model: pathlib.Path, tokens: int
    ) -> None:
        super().__init__(
            [
                *(sys.executable, str(HERE / "gpt4all_engine.py")),
                *(str(model), str(tokens)),
            ],
            environment,
        )

    def said(self) -> str:
        """Returns its next line that is not llama.cpp's; "" once it has
        ended."""
        while line := self.receive():
            if line.startswith(("ok", "error")):
                break
        return line.strip()


class LlamaTest(machine.Machine):
    pool_slabs = 5

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = pathlib.Path(folder.name, "tiny.gguf")
        tiny_gguf.write(cls.model)

    def start(self, *, shim: bool = True, tokens: int = TOKENS) -> Llama:
        libraries = f"{BUILD / 'lib/cuda11'}:{EMUCUDA}"
        preload = {"LD_PRELOAD": str(SHIM)} if shim else {}
        engine = Llama(
            self.environment | preload | {"LD_LIBRARY_PATH": libraries},
            self.model,
            tokens,
        )
        self.addCleanup(engine.kill)
        return engine

    def serve(self, engine: Llama) -> None:
        engine.send("hello")
        self.assertEqual(engine.said(), "ok generated", engine.stderr())

    def test_without_fineserve(self) -> None:
        engine = self.start(shim=False)
        self.assertEqual(engine.said(), "ok loaded emulated", engine.stderr())
        self.serve(engine)

    def test_kv_is_recognised_and_leased(self) -> None:
        self.start_daemon()
        engine = self.start()
        self.assertEqual(engine.said(), "ok loaded emulated", engine.stderr())
        self.serve(engine)
        self.assertEqual(self.slabs_held(), {0: 3, 1: 2})
        explained = self.machine.fsctl("explain", str(engine.pid)).stdout
        self.assertEqual(explained.count("redirected  lease"), 1, explained)
        self.assertIn('(rule "llama.cpp-2024")', explained)
        # Weights and buffers are no KV.
        self.assertGreater(explained.count("passed through"), 1, explained)

    def test_slabs_come_back_when_it_ends(self) -> None:
        self.start_daemon()
        for kill in True, False:
            with self.subTest(kill=kill):
                engine = self.start()
                self.assertIn("loaded", engine.said(), engine.stderr())
                if kill:
                    machine.kill_9(engine.pid)
                else:
                    engine.close_input()
                self.assertTrue(
                    self.eventually(
                        lambda: self.free_slabs() == self.pool_slabs
                    )
                )

    def test_two_share_a_pool_and_a_third_has_no_room(self) -> None:
        self.start_daemon()
        first, second = self.start(), self.start()
        for engine in first, second:
            self.assertIn("loaded", engine.said(), engine.stderr())
        third = self.start()
        # GPT4All then serves on the CPU.
        self.assertEqual(third.said(), "ok loaded None", third.stderr())
        self.assertIn("the pool has 1 slabs left, 2 wanted", third.stderr())
        for engine in first, second:
            self.serve(engine)


if __name__ == "__main__":
    unittest.main()
