"""Names the memory that holds SGLang's parameters alone (fineserve_vllm.weights).

A request that the scheduler gets from another process may have it write
parameters, unless it is of one of the kinds below. SGLang's kinds of
experts treat their weights too differently: they are not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fineserve_vllm.weights import Freezer, Weights

_LOADER = "sglang.srt.model_loader.loader.DefaultModelLoader.load_model"
_DISPATCHER = (
    "sglang.srt.managers.scheduler.Scheduler.init_request_dispatcher"
)

_WRITE_NO_PARAMETERS = frozenset({
    "AbortReq",
    "BatchTokenizedEmbeddingReqInput",
    "BatchTokenizedGenerateReqInput",
    "CloseSessionReqInput",
    "ConfigureLoggingReq",
    "ContinueGenerationReqInput",
    "ExpertDistributionReq",
    "FlushCacheReqInput",
    "FreezeGCReq",
    "GetInternalStateReq",
    "GetWeightsByNameReqInput",
    "LoadLoRAAdapterReqInput",
    "OpenSessionReqInput",
    "PauseGenerationReqInput",
    "ProfileReq",
    "ReleaseMemoryOccupationReqInput",
    "ResumeMemoryOccupationReqInput",
    "SetInternalStateReq",
    "ShutdownReq",
    "SlowDownReqInput",
    "TokenizedEmbeddingReqInput",
    "TokenizedGenerateReqInput",
    "UnloadLoRAAdapterReqInput",
    "UpdateWeightVersionReqInput",
})


class Parameters:
    """The parameters of this process's scheduler."""

    def __init__(self, shim: Freezer) -> None:
        self._weights = Weights(shim)

    def hooks(self) -> list[tuple[str, Callable[..., Any]]]:
        """Returns the functions to wrap, by name, with their wrappers."""
        return [(_LOADER, self._load), (_DISPATCHER, self._dispatcher)]

    def constructed(self, scheduler: Any) -> None:
        """The engine serves from now on."""
        with self._weights.written(_Worker(scheduler), starts=True):
            pass

    def _load(
        self, original: Callable[..., Any], loader: Any, *args: Any, **kwargs: Any
    ) -> Any:
        with self._weights.loading(why_not()):
            return original(loader, *args, **kwargs)

    def _dispatcher(
        self, original: Callable[..., None], scheduler: Any
    ) -> None:
        original(scheduler)
        dispatch = scheduler._request_dispatcher

        def call(request: Any) -> Any:
            if type(request).__name__ in _WRITE_NO_PARAMETERS:
                return dispatch(request)
            with self._weights.written(_Worker(scheduler), starts=False):
                return dispatch(request)

        scheduler._request_dispatcher = call


def why_not() -> str | None:
    """Returns why the engine cannot name its parameters; None if it can."""
    from sglang.srt.runtime_context import get_exec, get_parallel

    if get_parallel().tp_size > 1:
        return "it spans GPUs"
    offload = get_exec().offload
    if offload.cpu_offload_gb > 0 or offload.offload_group_size > 0:
        return "some are copied from the host while it serves"
    return None


class _Worker:
    """The scheduler's models, for fineserve_vllm.weights.constants()."""

    def __init__(self, scheduler: Any) -> None:
        self._model = scheduler.tp_worker.model_runner.model

    def get_model(self) -> Any:
        return self

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        for name, parameter in self._model.named_parameters():
            if ".experts." not in name:
                yield name, parameter

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        buffers: Iterator[tuple[str, Any]] = self._model.named_buffers()
        return buffers
