"""The doubles match vLLM wherever the plugin touches it."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest

import doubles

REAL = doubles.prepare()

from doubles import seams  # noqa: E402


def recorded() -> dict[str, object]:
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted(seams.SIGNATURES.glob("*.json"))
    }


# Seams that differ between versions; the plugin handles all variants.
DIFFERENT = {
    # The plugin passes the arguments of these on.
    "vllm.v1.core.block_pool.BlockPool.__init__",
    "vllm.v1.core.kv_cache_coordinator.KVCacheCoordinator.__init__",
    # kv_groups.planner()
    "vllm.v1.core.kv_cache_planning.get_global_kv_cache_groups",
    "vllm.v1.core.kv_cache_utils.get_kv_cache_groups",
}


def alike(seam: dict[str, dict[str, object]]) -> dict[str, object]:
    """Returns the seams that must be the same in all versions."""
    return {
        name: found
        for part in seam.values()
        for name, found in part.items()
        if name not in DIFFERENT
    }


class DoublesTest(unittest.TestCase):
    maxDiff = None

    def test_every_recorded_seam_exists_in_every_version(self) -> None:
        self.assertTrue(recorded())
        for version, seam in recorded().items():
            for part in ("attributes", "names"):
                missing = [k for k, there in seam[part].items() if not there]
                self.assertEqual(missing, [], version)

    def test_recorded_versions_agree_on_what_the_plugin_calls(self) -> None:
        versions = recorded()
        newest = versions[max(versions)]
        for version, seam in versions.items():
            self.assertEqual(alike(seam), alike(newest), version)

    def test_doubles_have_the_recorded_signatures(self) -> None:
        # Runs in a separate process, because `vllm` may be the real one here.
        program = (
            "import sys, json; sys.path[:0] = sys.argv[1:]; import seams; "
            "print(json.dumps(seams.record()))"
        )
        here = str(doubles.HERE)
        done = subprocess.run(
            [sys.executable, "-c", program, here],
            capture_output=True,
            text=True,
            check=True,
        )
        versions = recorded()
        self.assertEqual(json.loads(done.stdout), versions[max(versions)])

    @unittest.skipUnless(REAL, "vLLM is not installed")
    def test_installed_vllm_has_the_recorded_signatures(self) -> None:
        import vllm

        self.assertIn(vllm.__version__, recorded(), "run doubles/generate.py")
        self.assertEqual(seams.record(), recorded()[vllm.__version__])
