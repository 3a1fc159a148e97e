"""Two stock vLLM EngineCores share one daemon's pool; half a plugin has none.

On vLLM itself (label vllm), under the real shim, on the emulated device.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "torch"))

import machine  # noqa: E402

STEPS = int(os.environ.get("FINESERVE_LOOP_STEPS", "2000"))
# Path to which the totals are written for compatibility.py.
JSON = os.environ.get("FINESERVE_LOOP_JSON")
LOOP = HERE / "engine_loop_shim.py"


class Machine(machine.Machine):
    def launch(
        self, arguments: list[str], shim: pathlib.Path = machine.SHIM
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ
            | self.environment
            | {
                "LD_PRELOAD": str(shim),
                "FINESERVE_TEST_DRIVER": str(machine.EMUCUDA / "libcuda.so.1"),
                "FINESERVE_VIEW": "required",
                "PYTHONPATH": str(HERE),
                "VLLM_PLUGINS": "fineserve",
                "VLLM_LOGGING_LEVEL": "ERROR",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    def used_slabs(self) -> int:
        return self.pool_slabs - self.free_slabs()


class LoopTest(Machine):
    pool_slabs = 8  # too few for what both want at times

    def test_slabs_move_between_two_engines_and_every_token_is_right(
        self,
    ) -> None:
        reports = []
        for mode in [], ["--async"]:
            with self.subTest(mode):
                self.setUp()
                daemon = self.start_daemon()
                reports += self.two(mode)
                self._end(daemon)
        if JSON:
            version = reports[0]["version"]
            pathlib.Path(JSON).write_text(
                json.dumps({"version": version, "shared_pool": reports})
            )

    def two(self, mode: list[str]) -> list[dict[str, Any]]:
        """Runs two engines, checks the report of each and returns both."""
        engines = [
            self.launch(
                [str(LOOP), "--steps", str(STEPS), "--seed", seed, *mode]
            )
            for seed in ("1", "2")
        ]
        for engine in engines:
            while (line := engine.stdout.readline()) != "serving\n":
                self.assertTrue(line, engine.stderr and engine.stderr.read())
        for engine in engines:
            engine.stdin.write("\n")
            engine.stdin.flush()
        reports = []
        for engine in engines:
            out, errors = engine.communicate(timeout=900)
            self.assertEqual(engine.returncode, 0, out + errors[-4000:])
            report = json.loads(out.splitlines()[-1])
            print(mode, report)
            reports.append(report)
            self.assertGreater(report["finished"], STEPS / 20)
            # The engine got slabs beyond its floor, and returned some.
            self.assertGreater(report["leased"], report["floor"])
            self.assertGreater(report["returned"], 0)
            self.assertEqual(report["driver_calls_serving"], 0)
        return reports


class HalfAPluginTest(Machine):
    def refused(self, engine: subprocess.Popen[str]) -> str:
        out, errors = engine.communicate(timeout=300)
        self.assertNotEqual(engine.returncode, 0, out)
        self.assertNotIn("serving", out)
        self.assertEqual(self.used_slabs(), 0)
        return errors

    def test_a_plugin_that_vllm_cannot_import(self) -> None:
        self.start_daemon()
        folder = pathlib.Path(self.folder)
        shim = pathlib.Path(shutil.copy(machine.SHIM, folder))
        plugin = folder / "vllm"
        shutil.copytree(machine.BUILD / "lib/vllm", plugin)
        (plugin / "fineserve_vllm/kv_abi.py").write_text("import is_gone\n")
        # vLLM must import the plugin first, because the loop itself also
        # imports it, to check it.
        engine = self.launch(
            [
                "-c",
                "import sys; sys.argv = ['loop']\n"
                "from vllm.plugins import load_general_plugins\n"
                "load_general_plugins()\n"
                "print('swallowed', flush=True)\n"
                "from device_kv import Device\n"
                "Device().allocate(2 << 20)\n"
                "print('serving')\n",
            ],
            shim,
        )
        errors = self.refused(engine)
        self.assertIn("No module named 'is_gone'", errors)
        self.assertIn("FINESERVE_VIEW=required", errors)
        self.assertIn("MemoryError: cuMemAlloc_v2", errors)

    def test_a_pool_that_vllm_renamed(self) -> None:
        self.start_daemon()
        engine = self.launch(
            [
                "-c",
                "import sys; sys.argv = ['loop']\n"
                "import engine_loop_shim\n"
                "from vllm.v1.core import kv_cache_coordinator as c\n"
                "c.Pool = c.BlockPool\n"
                "del c.BlockPool\n"
                "sys.exit(engine_loop_shim.main())\n",
            ]
        )
        self.assertIn("defines no BlockPool", self.refused(engine))
