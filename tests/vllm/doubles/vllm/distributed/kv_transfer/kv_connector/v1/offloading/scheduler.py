"""Double of what the offloading connector notes of requests and copies."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class TransferJobStatus:
    is_store: bool
    deferred_fence_block_ids: list[int] | None = None
    fenced_block_ids: list[int] | None = None


@dataclasses.dataclass
class RequestGroupState:
    block_ids: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class RequestOffloadState:
    req: Any
    group_states: tuple[RequestGroupState, ...] = ()
    finished_signaled: bool = False


class OffloadingConnectorScheduler:
    def __init__(self, spec, vllm_config, kv_cache_config):
        self._jobs = {}
        self._req_status = {}
