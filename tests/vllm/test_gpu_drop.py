"""Two stock vLLM replicas on two GPUs, of which one drops its parameters and
reads the other's (fsctl drop, restore; design note 0048).

As test_gpu_worker.py, on vLLM itself (label vllm).
"""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any

from gpu_machine import MIB, REAL_GPU, Model, VllmEngine, VllmMachine

import dropping


@dataclasses.dataclass(frozen=True)
class Wide(Model):
    """A model with 24 MiB of weights per layer, in one allocation of its own
    and in two that share one; a token has 16 KiB of KV."""

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {
            "hidden_size": 256,
            "intermediate_size": 8192,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
        }


@unittest.skipIf(REAL_GPU is not None, "needs several GPUs")
class Replicas(dropping.Replicas, VllmMachine):
    MODEL = Wide(layers=4, seed=21, deviation=0.05)
    OTHER = Wide(layers=4, seed=22, deviation=0.05)
    slab_bytes = 4 * MIB
    device_memory = 288 * MIB

    def start_one(
        self, model: Model, environment: dict[str, str], **own: Any
    ) -> VllmEngine:
        return self.start_vllm(
            model, view=True, environment=environment, **own
        )


class Drop(Replicas):
    def test_a_replica_reads_the_others_parameters(self) -> None:
        self.start_both()
        self.go_through(
            self.requests_go_on,
            self.the_pool_grows_by_what_was_dropped,
            self.a_write_ends_the_drop_first,
            self.daemons_die,
            self.the_lender_dies,
            self.alone_it_is_refused,
            self.unequal_replicas_are_refused,
        )

    def unequal_replicas_are_refused(self) -> None:
        self.start_replica(1, self.OTHER)
        self.await_replica(1)
        self.refuses(0, "drop", "are not those of the other")
        self.serve(0, 1)


class OfSeveralProcesses(Replicas):
    def test_it_is_refused(self) -> None:
        self.start_replica(0, tensor_parallel_size=2)
        self.await_replica(0)
        self.serve(0)
        self.refuses(0, "drop", "has several processes; parameters are read")
        self.serve(0)
