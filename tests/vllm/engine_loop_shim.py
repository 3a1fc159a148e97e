#!/usr/bin/env python3
"""vLLM's own EngineCore, Scheduler and KVCacheManager on a daemon's slabs.

    engine_loop_shim.py --steps 3000 --seed 1 [--async]

As engine_loop.py, but vLLM finds the plugin by itself, the KV cache is in the
(emulated) device's memory, and a fineserved leases and asks back; a second such
process competes with this one. Run under the preload, FINESERVE_VIEW=required,
VLLM_PLUGINS=fineserve. Prints totals as JSON; 1 at the first violation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import engine_loop  # before vLLM: it sets the environment
import torch
from device_kv import Device, SlabTable, Worker
from engine_loop import Loop, Options
from engine_loop_checker import Violation
from engine_loop_device import FakeExecutor
from fineserve_vllm import kv_abi, view
from fineserve_vllm.grants import Changes
from fineserve_vllm.shim_grants import ShimGrants
from vllm.v1.kv_cache_interface import FullAttentionSpec

SLAB_COUNT = 16
BLOCKS_PER_SLAB = 16  # of 256 KiB, in slabs of 4 MiB
LAYERS = 2


class ShimExecutor(FakeExecutor):
    """Allocates the KV cache as a worker does, and warms up by writing to every
    block."""

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        spec = FullAttentionSpec(
            block_size=self.setup.block_size,
            num_kv_heads=16,
            head_size=512,
            dtype=torch.float16,
        )
        assert spec.page_size_bytes == 128 << 10
        return [{f"layer{i}": spec for i in range(LAYERS)}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["BLHNC"]]

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        from vllm.v1.worker.worker_base import WorkerWrapperBase

        wrapper = WorkerWrapperBase(0)
        wrapper.vllm_config = self.vllm_config
        wrapper.worker = Worker(Device())
        wrapper.initialize_from_config(kv_cache_configs)
        self.setup.kv = wrapper.worker.kv

    def compile_or_warm_up_model(self) -> None:
        for block in range(1, self.setup.num_blocks):
            self.setup.kv[block][0] = 1


class CheckedShimGrants(ShimGrants):
    """Leases from the daemon that pass each change to the checker."""

    loop: ShimLoop

    def poll(self) -> Changes:
        changes = super().poll()
        for index in changes.leased:
            self.loop.checker.leased(index)
            self.loop.totals.leased += 1
        for index in changes.asked_back:
            if index in self.loop.checker.held:
                self.loop.checker.asked(index)
                self.loop.totals.asked_back += 1
        return changes

    def return_slab(self, index: int) -> None:
        self.loop.checker.returning(index)
        super().return_slab(index)


class ShimLoop(Loop):
    slab_count = SLAB_COUNT
    blocks_per_slab = BLOCKS_PER_SLAB
    executor = ShimExecutor

    def _install(self) -> None:
        CheckedShimGrants.loop = self
        view.ShimGrants = CheckedShimGrants

    def _build(self) -> None:
        super()._build()
        self.kv = self.executor.setup.kv
        self.table = SlabTable()
        self.floor = len(self.checker.held)

    def _blocks_at_start(self) -> int:
        return 1 + len(self.checker.held) * self.blocks_per_slab

    def _handed_out(self, block_ids: list[int]) -> None:
        super()._handed_out(block_ids)
        self._require_leased(block_ids)

    def _require_leased(self, block_ids: Sequence[int]) -> None:
        self.table.require_leased(
            {block_id // self.blocks_per_slab for block_id in block_ids}
        )

    def _move_leases(self) -> None:
        """Only checks the leases: the daemon leases and asks back."""
        for tables in self.checker.tables().values():
            self._require_leased(tables)

    def _step(self) -> None:
        super()._step()
        if not self.received:
            time.sleep(0.001)  # the other engine's turn

    def _finish(self) -> None:
        """Finishes all requests, and checks that what is then asked back is
        returned."""
        for _ in range(20_000):
            if not (self.scheduler.has_requests() or self.core.batch_queue):
                break
            self._step()
        if self.received or self.scheduler.kv_cache_manager.usage != 0:
            raise Violation(f"requests never finished: {sorted(self.received)}")
        self.checker.check_idle()
        totals, checker = self.totals, self.checker
        totals.steps = checker.steps
        totals.returned = checker.returned
        totals.returned_with_steps_in_flight = (
            checker.returned_with_steps_in_flight
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--async", action="store_true", dest="async_scheduling")
    arguments = parser.parse_args()
    loop = ShimLoop(Options(**vars(arguments)))
    print("serving", flush=True)
    sys.stdin.readline()  # both begin at once
    try:
        totals = loop.run()
    except (Violation, AssertionError) as violation:
        print(f"FAILED (seed {arguments.seed}): {violation}")
        return 1
    stats = kv_abi.Shim().stats()
    report = dataclasses.asdict(totals) | {
        "version": engine_loop.vllm.__version__,
        "floor": loop.floor,
        "hit_rate": totals.hit_rate,
        "driver_calls_serving": stats.driver_calls_serving,
        "driver_calls_to_activate": stats.driver_calls_to_activate,
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
