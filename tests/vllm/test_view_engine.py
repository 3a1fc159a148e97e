"""Engines on doubles of vLLM, with the real shim and daemon on an emulated
GPU."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "torch"))

import machine  # noqa: E402

POOL_SLABS = machine.POOL_SLABS  # of 4 MiB
# Layers and bytes per page; a block has two pages, whose size is not a power of
# two.
LAYERS, PAGE = 2, 96 << 10
BLOCKS = (POOL_SLABS + 1) * machine.SLAB // (LAYERS * PAGE)
# Layers outermost: planes must end on a granule, whole blocks in a page.
EVEN_PAGE = 64 << 10
EVEN_BLOCKS = (POOL_SLABS + 1) * machine.SLAB // (LAYERS * EVEN_PAGE)


class Engine:
    """A running view_engine.py."""

    def __init__(
        self, environment: dict[str, str], arguments: list[str]
    ) -> None:
        self.stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env=os.environ | environment,
            text=True,
        )
        self.pid = self._process.pid

    def answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise AssertionError(f"the engine ended: {code}\n{self.errors()}")
        return json.loads(line)

    def ask(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return self.answer()

    def send(self, **command: Any) -> None:
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def end(self) -> int:
        code = self._process.wait(timeout=120)
        return code

    def errors(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self.stderr.close()


class ViewMachine(machine.Machine):
    def launch(
        self, arguments: list[str], name: str = "e", **environment: str
    ) -> Engine:
        engine = Engine(
            self.environment
            | {
                "LD_PRELOAD": str(machine.SHIM),
                "LD_LIBRARY_PATH": str(machine.EMUCUDA),
                "FINESERVE_ENGINE": name,
                "FINESERVE_VIEW": "required",
                "PYTHONPATH": str(HERE),  # the plugin comes with the shim
            }
            | environment,
            arguments,
        )
        self.addCleanup(engine.kill)
        return engine

    def start(
        self,
        name: str,
        layout: str = "blocks",
        page: int = PAGE,
        blocks: int = BLOCKS,
    ) -> Engine:
        engine = self.launch(
            [
                str(HERE / "view_engine.py"),
                json.dumps([layout, LAYERS, page, blocks]),
            ],
            name,
        )
        return engine

    def leased(self) -> int:
        return POOL_SLABS - self.free_slabs()


class ViewTest(ViewMachine):
    def test_an_engine_starts_with_its_floor_and_grows_with_its_load(
        self,
    ) -> None:
        self.start_daemon()
        engine = self.start("a")
        self.assertEqual(engine.answer()["slabs"], POOL_SLABS)
        # The longest request has 6 blocks; a slab holds 20 or 21.
        begin = engine.ask(**wait("held", at_least=1))
        self.assertEqual(begin["held"], 1)
        engine.ask(do="load", requests=40)
        grown = engine.ask(**wait("leased", at_least=5))
        self.assertGreaterEqual(grown["leased"], 5, grown)
        done = engine.ask(**wait("finished", at_least=100))
        self.assertGreater(done["tokens"], 3000)
        self.assertEqual(done["driver_calls_serving"], 0)

    def test_slabs_travel_between_two_engines_while_both_serve(self) -> None:
        self.start_daemon("--planes", "2")
        first = self.start("a")
        second = self.start("b", "layers", EVEN_PAGE, EVEN_BLOCKS)
        first.answer(), second.answer()
        first.ask(do="load", requests=200)
        alone = first.ask(**wait("leased", at_least=POOL_SLABS - 1))
        self.assertGreaterEqual(alone["leased"], POOL_SLABS - 1, alone)

        second.ask(do="load", requests=200)
        shared = second.ask(**wait("leased", at_least=5))
        self.assertGreaterEqual(shared["leased"], 5, shared)
        beside = first.ask(**wait("leased", at_most=11))
        self.assertLessEqual(beside["leased"], 11, beside)
        for engine in first, second:
            before = engine.ask(do="report")["finished"]
            after = engine.ask(**wait("finished", at_least=before + 50))
            self.assertGreaterEqual(after["finished"], before + 50)

        # The slabs then move back: the first engine is idle and has stopped
        # wanting them.
        first.ask(do="load", requests=0)
        idle = first.ask(**wait("running", at_most=0))
        self.assertEqual(idle["running"], 0)
        grown = second.ask(**wait("leased", at_least=11))
        self.assertGreaterEqual(grown["leased"], 11, grown)
        for engine in first, second:
            report = engine.ask(do="report")
            self.assertEqual(report["driver_calls_serving"], 0)
        self.assertGreater(first.ask(do="report")["returned"], 0)

    def test_an_idle_engine_gives_back_and_says_that_it_uses_nothing(
        self,
    ) -> None:
        self.start_daemon()
        engine = self.start("a")
        engine.answer()
        engine.ask(do="load", requests=100)
        engine.ask(**wait("leased", at_least=8))
        engine.ask(do="load", requests=0)
        engine.ask(**wait("running", at_most=0))
        self.assertEqual(engine.ask(**wait("used", at_most=0))["used"], 0)

    def test_a_killed_engine_leaves_its_slabs_to_the_other(self) -> None:
        self.start_daemon()
        first, second = self.start("a"), self.start("b")
        first.answer(), second.answer()
        first.ask(do="load", requests=200)
        first.ask(**wait("leased", at_least=10))
        first.kill()
        second.ask(do="load", requests=200)
        grown = second.ask(**wait("leased", at_least=14))
        self.assertGreaterEqual(grown["leased"], 14, grown)

    def test_engines_go_on_when_the_daemon_dies(self) -> None:
        daemon = self.start_daemon()
        engine = self.start("a")
        engine.answer()
        engine.ask(do="load", requests=100)
        before = engine.ask(**wait("leased", at_least=8))
        daemon.kill()
        after = engine.ask(**wait("finished", at_least=before["finished"] + 50))
        self.assertGreaterEqual(after["finished"], before["finished"] + 50)


class RefusedTest(ViewMachine):
    """An engine that cannot have its view does not start."""

    def refused(self, engine: Engine) -> str:
        self.assertNotEqual(engine.end(), 0)
        return engine.errors()

    def test_without_a_daemon(self) -> None:
        self.assertIn("no daemon", self.refused(self.start("a")))

    def test_a_view_that_cannot_hold_the_longest_request(self) -> None:
        self.start_daemon()
        errors = self.refused(self.start("a", blocks=24))
        self.assertRegex(errors, "KvError: FineServe: .*blocks")
        self.assertEqual(self.leased(), 0)

    def test_planes_that_do_not_end_on_a_granule(self) -> None:
        self.start_daemon()
        errors = self.refused(self.start("a", "layers", EVEN_PAGE, 33))
        self.assertIn("--num-gpu-blocks-override 64", errors)


# vLLM goes on without a plugin whose import fails.
SWALLOWING = """
import doubles; doubles.prepare()
from vllm.v1.core import kv_cache_coordinator as c
{before}
try:
    from fineserve_vllm import plugin
    plugin.register()
except Exception as error:
    print("swallowed:", error)
from device_kv import Device
from doubles import build
device = Device()
device.allocate(256 << 10)
try:
    device.allocate(2 << 20)
    print("started")
except MemoryError as error:
    print("refused:", error)
"""


class HalfAPluginTest(ViewMachine):
    def run_half(
        self, before: str = "", **environment: str
    ) -> tuple[str, str]:
        engine = self.launch(
            ["-c", SWALLOWING.format(before=before)], **environment
        )
        self.assertEqual(engine.end(), 0, engine.errors())
        return engine._process.stdout.read(), engine.errors()

    def require_refusal(self, said: str, errors: str) -> None:
        self.assertIn("refused:", said)
        self.assertNotIn("started", said)
        (line,) = errors.splitlines()
        self.assertIn("FINESERVE_VIEW=required", line)
        self.assertEqual(self.leased(), 0)

    def test_a_whole_plugin_gets_memory(self) -> None:
        said, _ = self.run_half()
        self.assertEqual(said, "started\n")

    def test_a_renamed_pool_gets_no_memory(self) -> None:
        self.start_daemon()
        said, errors = self.run_half("c.Pool = c.BlockPool; del c.BlockPool")
        self.assertIn("swallowed: FineServe: this vLLM version", said)
        self.require_refusal(said, errors)

    def test_a_plugin_that_cannot_be_imported_gets_no_memory(self) -> None:
        self.start_daemon()
        folder = pathlib.Path(self.folder, "broken")
        (folder / "fineserve_vllm").mkdir(parents=True)
        (folder / "fineserve_vllm/__init__.py").touch()
        (folder / "fineserve_vllm/plugin.py").write_text("import is_gone\n")
        said, errors = self.run_half(
            f"import sys; sys.path.insert(0, {str(folder)!r})"
        )
        self.assertIn("swallowed: No module named 'is_gone'", said)
        self.require_refusal(said, errors)

    def test_no_plugin_at_all_gets_no_memory(self) -> None:
        self.start_daemon()
        said, errors = self.run_half(
            "import os, sys; sys.path[:] = [p for p in sys.path "
            "if not os.path.exists(p + '/fineserve_vllm')]"
        )
        self.assertIn("swallowed: No module named 'fineserve_vllm'", said)
        self.require_refusal(said, errors)

    def test_a_scheduler_with_another_pool_is_not_activated(self) -> None:
        """The plugin replaced the pool, but vLLM then built one under another
        name."""
        self.start_daemon()
        engine = self.launch(
            [
                "-c",
                "import view_engine as e\n"
                "from vllm.v1.core import kv_cache_coordinator as c\n"
                "from vllm.v1.core import block_pool\n"
                "register = e.plugin.register\n"
                "def late():\n"
                "    register(); c.BlockPool = block_pool.BlockPool\n"
                "e.plugin.register = late\n"
                f"e.Engine('blocks', {LAYERS}, {PAGE}, {BLOCKS})\n",
            ]
        )
        self.assertNotEqual(engine.end(), 0)
        self.assertIn("instead of the leased pool", engine.errors())
        self.assertEqual(self.leased(), 0)


def wait(what: str, **bounds: int) -> dict[str, Any]:
    return {"do": "wait", "for": what} | bounds
