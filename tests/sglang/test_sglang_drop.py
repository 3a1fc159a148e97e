"""Two stock SGLang replicas on two GPUs, one of which drops its parameters and
reads those of the other (label sglang; as test_gpu_drop.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

from sglang_machine import PLANES, SglangMachine, WideModel  # sets the path, too
from engine_process import EngineProcess
from tiny_models import Model
import dropping


@dataclasses.dataclass(frozen=True)
class Wide(WideModel):
    """A layer has 18 MiB of weights."""

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {"intermediate_size": 8192}


class Drop(dropping.Replicas, SglangMachine):
    MODEL = Wide(seed=21, deviation=0.05)
    RESERVE = "768MiB"

    def start_daemon_of(self, gpu: int, *arguments: str) -> None:
        super().start_daemon_of(gpu, "--planes", str(PLANES), *arguments)

    def start_one(
        self, model: Model, environment: dict[str, str], **own: Any
    ) -> EngineProcess:
        return self.start_sglang(
            model, view=True, environment=environment, **own
        )

    def test_a_replica_reads_the_others_parameters(self) -> None:
        self.start_both()
        self.go_through(
            self.requests_go_on,
            self.a_write_ends_the_drop_first,
            self.the_lender_dies,
            self.alone_it_is_refused,
        )

    def reload(self, writer: int) -> None:
        self.assertTrue(self.engines[writer].run("reload_weights"))
