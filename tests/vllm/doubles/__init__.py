"""Stand-ins for the parts of vLLM that the plugin touches.

Our own code, for machines without vLLM: the package `vllm` beside this file has
the names and parameters that signatures/*.json recorded from real releases
(generate.py writes them, test_pool_doubles.py checks both ends) and only the
behaviour that the plugin's unit tests need.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import sys
import types
from typing import Any

HERE = pathlib.Path(__file__).parent
PLUGIN = HERE.parents[2] / "shim" / "vllm"


def prepare() -> bool:
    """Makes the plugin importable, and `vllm` too: the installed one if there
    is one (returns True), else the doubles."""
    if str(PLUGIN) not in sys.path:
        sys.path.insert(0, str(PLUGIN))
    spec = importlib.util.find_spec("vllm")
    # Without an origin it is a folder of that name, not a package.
    real = (
        spec is not None
        and spec.origin is not None
        and str(HERE) not in spec.origin
    )
    if not real and str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return real


def planning() -> types.ModuleType:
    """The module in which vLLM plans its KV cache."""
    for name in ("kv_cache_planning", "kv_cache_utils"):  # before 0.33
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"vllm.v1.core.{name}")
    raise ModuleNotFoundError("vllm.v1.core.kv_cache_planning")


def no_current_config() -> Any:
    """A worker's wrapper sets a current configuration, which real vLLM checks;
    within this context it does not."""
    from unittest import mock

    from vllm.v1.worker import worker_base

    return mock.patch.object(
        worker_base,
        "set_current_vllm_config",
        lambda config: mock.MagicMock(),
        create=True,
    )
