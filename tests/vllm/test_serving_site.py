"""Waiting for a site ends when a program of it does, with its last words.

The programs are scripts: no engine starts.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
import unittest
from unittest import mock

import serving_site
from serving_site import Served, ServingSite

AT_ONCE_S = 10  # where the wait takes minutes

SERVES = 'echo " serving "; exec sleep 600'
NO_ENGINE_SERVES = """echo '{"models": []}'"""


class ServingSiteTest(unittest.TestCase):
    def start(self, daemon: str = SERVES, up: str = SERVES) -> None:
        """Starts a site with one engine that never serves, and with these
        scripts in place of fineserved and `fsctl up`."""
        build, folder = (
            pathlib.Path(
                self.enterContext(tempfile.TemporaryDirectory())
            )
            for _ in range(2)
        )
        (build / "bin").mkdir()
        for name, script in (
            ("fineserved", daemon),
            ("fineserve-proxy", SERVES),
            (
                "fsctl",
                f'[ "$1" = up ] || {{ {NO_ENGINE_SERVES}; exit; }}; {up}',
            ),
        ):
            program = build / "bin" / name
            program.write_text(f"#!/bin/sh\nlogs={folder}\n{script}\n")
            program.chmod(0o755)
        self.enterContext(mock.patch.object(serving_site, "BUILD", build))
        site = ServingSite(folder, [Served("a", "model", {})], {}, {})
        self.addCleanup(site.close)
        site.start_all(1, 1)

    def fails_at_once(self, words: str, **scripts: str) -> None:
        began = time.monotonic()
        with self.assertRaisesRegex(AssertionError, f"^{words}\n"):
            self.start(**scripts)
        self.assertLess(time.monotonic() - began, AT_ONCE_S)

    def test_a_daemon_that_ends_is_named_with_its_last_line(self) -> None:
        self.fails_at_once(
            "daemon has ended: no such GPU",
            daemon="echo first; echo no such GPU; exit 1",
        )

    def test_an_engine_that_ends_is_named_with_its_last_line(self) -> None:
        self.fails_at_once(
            "a has ended: no such model",
            up="echo no such model >$logs/a.log; "
            "echo a: ended with 1, log a.log; exec sleep 600",
        )

    def test_a_refusal_is_found_above_what_vllm_says_last(self) -> None:
        self.fails_at_once(
            "a has ended: RuntimeError: FineServe: set this",
            up='printf "RuntimeError: FineServe: set this\\nfailed\\n" '
            ">$logs/a.log; echo a: ended with 1, log a.log; exec sleep 600",
        )
