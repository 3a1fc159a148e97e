"""Stock SGLang at tensor parallel 2, and in two pipeline stages, on two pools:
each rank has a view of its GPU's pool, and both ranks have the same pages
(label sglang; design notes 0028 and 0030)."""

from __future__ import annotations

from typing import Any

from sglang_machine import (
    EngineProcess,
    SglangTrade,
    WideModel,
    environment_of_stages,
)
from several_gpus import SeveralGpus

# Each of two ranks has 16 heads, and 512 tokens in a slab.
WIDE = WideModel(heads=32, seed=11)


class Ranks(SeveralGpus, SglangTrade):
    """An engine on two GPUs with pools of different sizes, and another engine
    on the second GPU."""

    SLABS = [14, 10]
    MODELS = [WIDE, WideModel(seed=2, heads=12)]
    ON = [[0, 1], [1]]
    PARALLEL: list[dict[str, Any]] = [{"tp_size": 2}, {}]

    def start_one(
        self, i: int, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        return super().start_one(
            i, environment | self.gpus_of(i), **self.PARALLEL[i], **own
        )


class TensorParallelBesideOne(Ranks):
    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all({})
        self.trade_until(returned=12)
        self.kill_a_rank()


class StagesBesideOne(Ranks):
    """Each stage has a step of a different micro-batch in flight."""

    PARALLEL = [{"pp_size": 2}, {}]

    def has_waited_for_a_step(self) -> bool:
        stages = self.engines[0].run("stats_of_all")
        return all(stage["fence_waits"] for stage in stages)

    def test_slabs_move_and_every_token_is_right(self) -> None:
        self.start_all(environment_of_stages())
        self.together_until(self.has_waited_for_a_step, 64)
        self.assertTrue(self.has_waited_for_a_step())
        self.trade_until(returned=12)
        self.kill_a_rank()
