"""Is the leased block pool as fast as vLLM's own?

Both pools have the same number of usable blocks; ours has them in many slabs,
all leased, which is how an engine runs between lease changes. Each figure is
the median over rounds of the nanoseconds per call, and each claim is the median
of the rounds' ratios. The pools take turns within a round and are rebuilt
several times in changing order, because their place in memory matters. A second
vLLM pool takes part as control: the largest deviation of its ratio to the first
one is the noise of the run, by which a ratio may exceed 1.

Modes:
  uncached  prefix caching off
  unhashed  prefix caching on, blocks freed before they were full
  hashed    prefix caching on, every block freed with a hash, so that every
            allocation evicts (the pool is warmed up to that state)

The bench also measures what leases add to each step: polling, ranking and the
fence.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import pathlib
import statistics
import sys
import time
import types
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "shim" / "vllm"), str(ROOT / "bench" / "report")]

import bench_report  # noqa: E402
from bench_report import Report  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = bench_report.parser("blockpool", __doc__)
    for name, usual, meaning in (
        ("--rounds", 31, "rounds of all pools"),
        ("--builds", 6, "how often the pools are built"),
        ("--slabs", 64, "slabs of the leased pool"),
        ("--blocks-per-slab", 64, "blocks per slab of the leased pool"),
    ):
        parser.add_argument(
            name, type=int, default=usual, help=f"{meaning} ({usual})"
        )
    return parser.parse_args()


# Parsed before vLLM is imported, so that --help works without it.
ARGUMENTS = arguments()

from fineserve_vllm.engine_leases import (  # noqa: E402
    AskBackOptions,
    EngineLeases,
)
from fineserve_vllm.grants import InMemoryGrants  # noqa: E402
from fineserve_vllm.pool import LeasedBlockPool  # noqa: E402
from vllm import __version__ as vllm_version  # noqa: E402
from vllm.v1.core.block_pool import BlockPool  # noqa: E402

BLOCK_TOKENS = 16
_now = time.perf_counter_ns
# The parts of vLLM's scheduler that leases use.
_SCHEDULER = types.SimpleNamespace(
    has_unfinished_requests=lambda: True,
    kv_cache_manager=types.SimpleNamespace(watermark_blocks=0),
)


class Workload:
    """Takes n blocks, gives them back, and times both."""

    def __init__(self, pool: Any, hashed: bool) -> None:
        self.pool = pool
        self._hashed = hashed
        self._next_hash = 0
        self._leases = (
            EngineLeases(_SCHEDULER, pool, lambda: 0, AskBackOptions())
            if isinstance(pool, LeasedBlockPool)
            else None
        )
        # Warms up; with hashes, until every block is cached.
        for _ in range(3):
            for _ in range(pool.get_num_free_blocks() // 64):
                self.run(64, 1)
        self.enter_schedule()

    def run(self, n: int, calls: int) -> tuple[float, float]:
        """Returns the mean ns of get_new_blocks(n) and of free_blocks, as a
        scheduler calls them within a step."""
        if isinstance(self.pool, LeasedBlockPool):
            with self.pool.held_by_scheduler:
                return self._timed(n, calls)
        return self._timed(n, calls)

    def _timed(self, n: int, calls: int) -> tuple[float, float]:
        get = self.pool.get_new_blocks
        free = self.pool.free_blocks
        get_ns = free_ns = 0
        for _ in range(calls):
            t0 = _now()
            blocks = get(n)
            t1 = _now()
            if self._hashed:
                self._hash(blocks)
            blocks.reverse()
            t2 = _now()
            free(blocks)
            t3 = _now()
            get_ns += t1 - t0
            free_ns += t3 - t2
        return get_ns / calls, free_ns / calls

    def _hash(self, blocks: list[Any]) -> None:
        for block in blocks:
            self._next_hash += 1
            key = self._next_hash.to_bytes(36, "big")
            block.set_block_hash(key, BLOCK_TOKENS)
            self.pool.cached_block_hash_to_block.insert(key, block)

    def enter_schedule(self) -> float:
        """Returns the ns that leases add to a step; 0 for vLLM's own pool."""
        if self._leases is None:
            return 0
        output = object()
        start = _now()
        self._leases.schedule_begins()
        self._leases.schedule_ends(output)
        self._leases.step_processed(output)
        return _now() - start


STOCK, LEASED, CONTROL = range(3)


def build(which: int, caching: bool, args: argparse.Namespace) -> Any:
    slabs, blocks = args.slabs, args.blocks_per_slab
    if which != LEASED:
        return BlockPool(slabs * blocks + 1, caching, BLOCK_TOKENS)
    grants = InMemoryGrants.uniform(slabs, blocks, range(1, slabs + 1))
    return LeasedBlockPool(
        (slabs + 1) * blocks, caching, BLOCK_TOKENS, grants=grants
    )


SPECIALISING_CALLS = 128

# (operation, n, mode) -> per pool, one mean per round
Samples = dict[tuple[str, int, str], tuple[list[float], ...]]


def sample(args: argparse.Namespace) -> Samples:
    samples: Samples = collections.defaultdict(lambda: ([], [], []))
    for mode, caching in (
        ("uncached", False),
        ("unhashed", True),
        ("hashed", True),
    ):
        for build_number in range(args.builds):
            orders = itertools.cycle(itertools.permutations(range(3)))
            for _ in range(build_number):
                next(orders)
            loads = {
                which: Workload(build(which, caching, args), mode == "hashed")
                for which in next(orders)
            }
            for n in (1, 16, 256):
                calls = max(8, 1024 // n)
                for _ in range(args.rounds):
                    for which in next(orders):
                        # Each pool warms up before it is timed: CPython
                        # specialises vLLM's methods for the class of the pool,
                        # and an engine has only one class.
                        loads[which].run(n, SPECIALISING_CALLS)
                        get_ns, free_ns = loads[which].run(n, calls)
                        loads[which].enter_schedule()
                        samples["get", n, mode][which].append(get_ns)
                        samples["free", n, mode][which].append(free_ns)
    return samples


def ratio(numerators: list[float], denominators: list[float]) -> float:
    # Two digits, because the third differs from run to run.
    return round(
        statistics.median(a / b for a, b in zip(numerators, denominators)), 2
    )


def measure(report: Report, args: argparse.Namespace) -> None:
    samples = sample(args)
    noise = max(
        abs(ratio(pools[CONTROL], pools[STOCK]) - 1)
        for (_, n, _), pools in samples.items()
        if n > 1
    )
    for (operation, n, mode), pools in samples.items():
        name = f"{operation} {n}, {mode}"
        for which, label in ((STOCK, "vLLM"), (LEASED, "leased")):
            report.figure(
                f"{name}: {label} (ns)", statistics.median(pools[which])
            )
        report.at_most(
            f"{name}: leased / vLLM",
            ratio(pools[LEASED], pools[STOCK]),
            1.3 if n == 1 else round(1 + noise, 2),
        )
    report.figure("noise: vLLM / vLLM - 1 (ratio)", noise)
    measure_step(report, args)


def measure_step(report: Report, args: argparse.Namespace) -> None:
    """Measures leases after a step that freed blocks of many slabs and after
    an idle one."""
    load = Workload(build(LEASED, False, args), hashed=False)
    busy, idle = [], []
    for _ in range(args.rounds):
        load.run(256, 1)
        busy.append(load.enter_schedule())
        idle.append(load.enter_schedule())
    report.figure("leases per step, nothing freed (ns)", statistics.median(idle))
    report.figure(
        "leases per step, 256 blocks freed (ns)", statistics.median(busy)
    )


def main() -> int:
    print(f"blockpool, vLLM {vllm_version}")
    report = Report()
    measure(report, ARGUMENTS)
    report.write(ARGUMENTS.json, "blockpool", vllm=vllm_version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
