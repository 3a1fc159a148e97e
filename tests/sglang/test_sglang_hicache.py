"""SGLang's hierarchical cache on a view: KV comes back right from the host while slabs
trade, and no slab goes while it is copied (label sglang).

By its copies of PyTorch's operators (--hicache-io-backend direct); its kernels run on
a GPU only.
"""

from __future__ import annotations

import unittest
from typing import Any

from sglang_machine import EngineProcess, SglangTrade  # sets the path, too
from tiny_models import random_prompts

HICACHE = {
    "enable_hierarchical_cache": True,
    "hicache_io_backend": "direct",
    "hicache_mem_layout": "layer_first",
    "page_size": 16,
}
# Least number of tokens that each engine must get from the host.
LEAST_LOADED = 1000


class HiCache(SglangTrade):
    """Two engines that get their prompts again after the other engine had the
    slabs with their KV."""

    pool_slabs = 8
    # Makes copies to the host take longer than steps.
    SLOW = {"HOST_DEVICE_STORE_MS": "100"}

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        return self.start_sglang(
            self.MODELS[i], view=True, environment=environment, **HICACHE | own
        )

    def ask_again(self, i: int, seed: int) -> list[list[int]]:
        prompts = random_prompts(seed + i, 24, (150, 300), shared=64)
        self.engines[i].ask(
            "generate", prompts=prompts, max_tokens=[1, 24] * 12
        )
        return prompts

    def rounds(self, seed: int, count: int = 3) -> None:
        """Sends the same prompts in each round: first in turns, so that each
        engine takes the other's slabs, then together."""
        for _ in range(count):
            for i in range(2):
                self.finish(i, self.ask_again(i, seed))
            prompts = [self.ask_again(i, seed) for i in range(2)]
            for i, asked in enumerate(prompts):
                self.finish(i, asked)

    def check_rounds(self) -> None:
        for report in self.reports():
            self.check(report)
            self.assertGreater(report["slabs_returned"], 0)
            self.assertGreater(report["copies"], 0)
            self.assertEqual(report["stray_copies"], 0)
            print(f"{report['loaded_tokens']} tokens came back from the host")
            self.assertGreater(report["loaded_tokens"], LEAST_LOADED)


class WriteThrough(HiCache):
    def test_kv_comes_back_right_while_slabs_trade(self) -> None:
        self.start_all(self.SLOW)
        self.rounds(100)
        self.check_rounds()


class WriteBack(HiCache):
    def test_kv_comes_back_right_while_slabs_trade(self) -> None:
        """KV is copied when its slab is asked back."""
        self.start_all({}, [{"hicache_write_policy": "write_back"}] * 2)
        self.rounds(200)
        self.check_rounds()
        self.kill_the_first(self.engines[0].run("stats")["pid"])


class WithoutTheLock(HiCache):
    """The breakage must be noticed where copies take longer than steps on a busy
    machine."""

    SLOW = {"HOST_DEVICE_STORE_MS": "1500"}

    def test_a_slab_that_goes_while_it_is_copied_is_noticed(self) -> None:
        self.start_all(self.SLOW | {"HOST_DEVICE_BREAK": "copied"})
        stray = 0
        for attempt in range(4):  # which slabs move when differs
            self.rounds(300 + 10 * attempt, count=1)
            stray = sum(report["stray_copies"] for report in self.reports())
            if stray:
                break
        print(f"stray copies: {stray}, wrong tokens: {self.wrong}")
        self.assertGreater(stray, 0)
