"""Stock vLLM's offloading of KV blocks to the host, on a view: blocks come back
right while slabs trade, and no slab goes while a copy reads it.

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import unittest
from typing import Any

from gpu_machine import EngineEnded, random_prompts
from test_gpu_worker import LARGE, Trade, broken

OFFLOADING = {"kv_offloading_size": 0.125, "disable_log_stats": False}  # GiB
# Least number of the prompts' tokens that each engine must find on the host in
# the second round.
LEAST_HITS = 1000


class Offloading(Trade):
    """Two engines that get the same prompts again after other engines have used
    the slabs of their blocks."""

    pool_slabs = 8
    # Copies to the host take longer than steps.
    SLOW = {"HOST_DEVICE_STORE_MS": "300"}
    # They take longer than steps on a busy machine, too.
    SLOWER = {"HOST_DEVICE_STORE_MS": "1500"}

    def ask_again(self, i: int, seed: int) -> list[list[int]]:
        """Sends the prompts of `seed`. Half of the requests end with the step
        that has read the prompt, so their blocks are free before the copies are
        planned."""
        prompts = random_prompts(seed, 24, (150, 300), shared=64)
        self.engines[i].ask(
            "generate", prompts=prompts, max_tokens=[1, 24] * 12
        )
        return prompts

    def rounds(self, seed: int = 100) -> None:
        """Sends the same prompts in each round, to both engines at once, so
        that slabs trade."""
        for _ in range(3):
            asked = [self.ask_again(i, seed + i) for i in range(2)]
            for i in range(2):
                self.finish(i, asked[i])

    def one_frees_and_one_waits(self, attempt: int) -> int:
        """Has one engine free its blocks early and compute on, so that it goes
        on copying them, while the other waits for them. Returns how many copies
        have strayed."""
        frees, takes = attempt % 2, 1 - attempt % 2
        asked = {}
        for i, tokens in (takes, [24] * 24), (frees, [1] * 12 + [64]):
            seed = 200 + 10 * attempt + i
            asked[i] = random_prompts(seed, len(tokens), (150, 300))
            self.engines[i].ask(
                "generate", prompts=asked[i], max_tokens=tokens
            )
        for i, prompts in asked.items():
            self.finish(i, prompts)
        return sum(report["stray_copies"] for report in self.reports())

    def no_copy_strays(self) -> None:
        for attempt in range(2):
            self.assertEqual(self.one_frees_and_one_waits(attempt), 0)
        self.assertEqual(self.wrong, [0, 0])

    def some_copies_stray(self) -> None:
        """Checks that copies stray if nothing holds a slab that is being
        copied."""
        stray = 0
        for attempt in range(4):  # which slabs move when differs
            stray = self.one_frees_and_one_waits(attempt)
            if stray:
                break
        print(f"stray copies: {stray}, wrong tokens: {self.wrong}")
        self.assertGreater(stray, 0)


class TwoEngines(Offloading):
    def test_blocks_come_back_right_while_slabs_trade(self) -> None:
        self.start_all(self.SLOW, [OFFLOADING] * 2)
        self.rounds()
        for engine, report in zip(self.engines, self.reports()):
            self.check(report)
            self.assertGreater(report["slabs_returned"], 0)
            self.assertGreater(report["copies"], 0)
            self.assertEqual(report["stray_copies"], 0)
            metrics = engine.run("metrics")
            hits = metrics["external_prefix_cache_hits"]
            print(
                f"{hits} tokens came back from the host; {report['let_go']} "
                f"times a loaded request let its blocks go"
            )
            self.assertGreater(hits, LEAST_HITS)


class SlowCopies(Offloading):
    def test_no_slab_goes_while_it_is_copied(self) -> None:
        self.start_all(self.SLOWER, [OFFLOADING] * 2)
        self.no_copy_strays()


class LetGo(Offloading):
    def test_a_request_that_was_loaded_in_vain_is_right(self) -> None:
        self.start_all(broken("loaded") | self.SLOW, [OFFLOADING] * 2)
        self.rounds(seed=300)
        for report in self.reports():
            self.check(report)
            self.assertEqual(report["stray_copies"], 0)
            self.assertGreater(report["let_go"], 0)


class WithoutTheHold(Offloading):
    def test_a_slab_that_goes_while_it_is_copied_is_noticed(self) -> None:
        self.start_all(broken("connector") | self.SLOWER, [OFFLOADING] * 2)
        self.some_copies_stray()


class Refusals(Trade):
    def refused(self, reason: str, **arguments: Any) -> None:
        engine = self.start_vllm(LARGE, view=True, **arguments)
        with self.assertRaisesRegex(EngineEnded, reason):
            engine.answer()

    def test_impossible_setting_is_refused_in_one_line(self) -> None:
        self.start_daemon()
        self.refused(
            r"RuntimeError: FineServe: sleep mode and KV connectors are not "
            r"supported together yet: remove .*\n",
            enable_sleep_mode=True,
            **OFFLOADING,
        )
        self.refused(
            r"RuntimeError: FineServe: the KV connector ExampleConnector is "
            r"not supported, .*\n",
            kv_transfer_config={
                "kv_connector": "ExampleConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"shared_storage_path": "/tmp/x"},
            },
        )
