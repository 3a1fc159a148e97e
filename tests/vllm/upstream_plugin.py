"""A pytest plugin for vLLM's own tests: our pool in place, everything leased.

FINESERVE_UPSTREAM_POOL is `original`, `leased`, or `linked`: as leased, but all
free blocks are in the part of our free queue that is vLLM's linked list, for
tests that follow its private pointers. FINESERVE_UPSTREAM_RESULTS names the
file for the outcomes. vLLM's tests/conftest.py is not used: it needs packages
that only end-to-end tests use; the three fixtures of it that the core tests ask
for are here.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib
import json
import logging
import os
import pathlib
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

_outcomes: dict[str, dict[str, Any]] = {}
_pools: collections.Counter[str] = collections.Counter()


class _Ids:
    """The ids that the pools built by one test handed out, in order."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.count = 0
        self.pools = 0
        self._digest = hashlib.sha256()

    def add(self, pool: Any, ids: list[int]) -> None:
        self.count += len(ids)
        self._digest.update(f"{pool._fineserve_ordinal}:{ids};".encode())

    def hex(self) -> str:
        return self._digest.hexdigest()


_ids = _Ids()


def _record(cls: type) -> None:
    """Records what instances of exactly this class hand out."""
    construct, get_new_blocks = cls.__init__, cls.get_new_blocks

    @functools.wraps(construct)
    def recording_construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            _pools[cls.__name__] += 1
            self._fineserve_ordinal = _ids.pools
            _ids.pools += 1
        construct(self, *args, **kwargs)

    @functools.wraps(get_new_blocks)
    def recording_get(self: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = get_new_blocks(self, *args, **kwargs)
        if type(self) is cls:
            _ids.add(self, [block.block_id for block in blocks])
        return blocks

    cls.__init__ = recording_construct
    cls.get_new_blocks = recording_get


def _link_free_blocks(cls: type) -> None:
    """Makes pools link free blocks at once. Their order stays the same: first
    the unlinked part, then the list."""
    from fineserve_vllm.free_queue import LeasedFreeQueue

    def link(queue: Any) -> None:
        if queue.num_free_blocks:
            queue.append_n(queue.popleft_n(queue.num_free_blocks))

    construct, prepend_n = cls.__init__, LeasedFreeQueue.prepend_n

    @functools.wraps(construct)
    def linking_construct(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        link(self.free_block_queue)

    @functools.wraps(prepend_n)
    def linking_prepend_n(self: Any, blocks: Any) -> None:
        prepend_n(self, blocks)
        link(self)

    cls.__init__ = linking_construct
    LeasedFreeQueue.prepend_n = linking_prepend_n


def _everything(num_blocks: int) -> Any:
    from fineserve_vllm.grants import InMemoryGrants

    if num_blocks < 2:  # the null block alone: no slab
        return InMemoryGrants([], [])
    return InMemoryGrants.everything(num_blocks)


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("cpu_test", "skip_global_cleanup", "optional", "slow_test"):
        config.addinivalue_line("markers", f"{mark}: upstream's")
    module = importlib.import_module("vllm.v1.core.block_pool")
    pool = os.environ["FINESERVE_UPSTREAM_POOL"]
    if pool == "original":
        _record(module.BlockPool)
        return
    from fineserve_vllm import plugin
    from fineserve_vllm.pool import LeasedBlockPool

    # Modules that subclass BlockPool must be imported before it is replaced. In
    # an engine, the coordinator has already been imported with all that it
    # needs.
    importlib.import_module("vllm.v1.core.kv_cache_coordinator")
    plugin.install(_everything, refuse_unsupported=False)
    _record(LeasedBlockPool)
    if pool == "linked":
        _link_free_blocks(LeasedBlockPool)
    # Replaces the class for tests that build a pool themselves.
    module.BlockPool = LeasedBlockPool


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _ids.restart()
    # The ids must be the same in every run, but random tests use UUIDs as
    # request ids.
    source = random.Random(0)
    uuid.uuid4 = lambda: uuid.UUID(int=source.getrandbits(128), version=4)


_PRECEDENCE = {"passed": 0, "skipped": 1, "failed": 2}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    entry = _outcomes.setdefault(report.nodeid, {"outcome": "passed"})
    if _PRECEDENCE[report.outcome] > _PRECEDENCE[entry["outcome"]]:
        entry["outcome"] = report.outcome
        entry["reason"] = _reason(report)
    if report.when == "call":
        entry["pools"], entry["ids"] = _ids.pools, _ids.count
        entry["digest"] = _ids.hex()


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    return " ".join(message.split())[:300]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes[report.nodeid] = {
            "outcome": "failed",
            "reason": " ".join(str(report.longrepr).split())[-300:],
        }


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = pathlib.Path(os.environ["FINESERVE_UPSTREAM_RESULTS"])
    path.write_text(json.dumps({"pools": _pools, "tests": _outcomes}))


@pytest.fixture
def default_vllm_config() -> Iterator[Any]:
    from vllm.config import VllmConfig, set_current_vllm_config

    config = VllmConfig()
    with set_current_vllm_config(config):
        yield config


@pytest.fixture
def temporary_enable_log_propagate() -> Iterator[None]:
    logger = logging.getLogger("vllm")
    previous, logger.propagate = logger.propagate, True
    yield
    logger.propagate = previous


@pytest.fixture
def caplog_vllm(
    temporary_enable_log_propagate: None, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO):
        yield caplog
