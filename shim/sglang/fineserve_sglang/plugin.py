"""Puts the leased allocators into SGLang.

register() is the entry point (group sglang.srt.plugins), which SGLang calls in
each of its processes. Under the preloaded shim, in an engine that was started
for a view of the shared pool, it registers hooks by SGLang's own registry. All
that SGLang could change to break this is named here, in allocators.py,
radix_cache.py, view.py and weights.py.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from fineserve_vllm import kv_abi

_SCHEDULER = "sglang.srt.managers.scheduler"
_MEMORY = "sglang.srt.mem_cache"

_LEASES = "_fineserve_leases"  # attribute of Scheduler instances


def register() -> None:
    """SGLang's plugin hook. Without the preload, without a view and in a
    process that has no scheduler nothing happens.

    Raises:
        RuntimeError: a view is wanted and this SGLang lacks a name that the
            plugin relies on. SGLang only logs it, and the shim then refuses
            device memory.
    """
    if not kv_abi.preloaded() or not kv_abi.view_is_wanted():
        return
    from fineserve_sglang import memory_saver

    _register(memory_saver.in_every_process())
    if _SCHEDULER not in sys.modules:
        return
    shim = kv_abi.Shim()
    shim.progress(kv_abi.Stage.PLUGIN_LOADED)
    hooks = _hooks(shim)
    for target, _ in hooks:
        try:
            pkgutil.resolve_name(target)
        except (AttributeError, ImportError) as error:
            raise RuntimeError(
                f"FineServe: this SGLang version is not supported: {error}"
            ) from error
    _register(hooks)
    shim.progress(kv_abi.Stage.POOL_REPLACED)


def _register(hooks: list[tuple[str, Any]]) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for target, hook in hooks:
        replaces = isinstance(hook, type)
        HookRegistry.register(
            target, hook, HookType.REPLACE if replaces else HookType.AROUND
        )


def leases_of(scheduler: Any) -> Any:
    """Returns the SchedulerLeases of a Scheduler; None while it is being
    built."""
    return getattr(scheduler, _LEASES, None)


def _hooks(shim: kv_abi.Shim) -> list[tuple[str, Any]]:
    """Returns the classes that are replaced and the functions that are
    wrapped."""
    from fineserve_sglang import allocators, memory_saver, view, weights

    its_view = view.View(shim)
    parameters = weights.Parameters(shim) if kv_abi.may_be_evicted() else None
    for allocator in (
        allocators.LeasedTokenAllocator,
        allocators.LeasedPagedAllocator,
    ):
        allocator.grants_factory = staticmethod(its_view.grants_for)
    hooks = [
        (
            f"{_MEMORY}.allocator.token.TokenToKVPoolAllocator",
            allocators.LeasedTokenAllocator,
        ),
        (
            f"{_MEMORY}.allocator.paged.PagedTokenToKVPoolAllocator",
            allocators.LeasedPagedAllocator,
        ),
        (
            f"{_MEMORY}.allocator.swa.SWATokenToKVPoolAllocator",
            allocators.LeasedWindowsAllocator,
        ),
        (f"{_MEMORY}.registry.default_radix_cache_factory", _radix_cache),
        *_allocation(its_view),
        *_event_loop(its_view, parameters),
        *(parameters.hooks() if parameters else ()),
        *memory_saver.hooks(shim, leases_of),
    ]
    its_view.needs([target for target, _ in hooks])
    return hooks


def _radix_cache(original: Callable[..., Any], context: Any) -> Any:
    from sglang.srt.mem_cache.registry import create_unified_radix_cache

    from fineserve_sglang.radix_cache import LeasedRadixCache

    return create_unified_radix_cache(context, cache_class=LeasedRadixCache)


def _allocation(its_view: Any) -> list[tuple[str, Any]]:
    configurator = f"{_MEMORY}.kv_cache_configurator.KVCacheConfigurator"
    pools = f"{_MEMORY}.memory_pool"

    def init_pools(original: Callable[..., None], self: Any) -> None:
        drafter = self.draft_worker
        its_view.drafts(drafter._draft_model_runners() if drafter else ())
        original(self)

    def configure(
        original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
    ) -> Any:
        its_view.configure(self)
        return original(self, *args, **kwargs)

    def profile(original: Callable[..., int], self: Any, *args: Any) -> int:
        if self.mambaish_config is not None:
            its_view.size_states(self)
        # SGLang does not measure the free memory. It replaces this number by
        # the result of the next hook, and insists that this number is larger.
        return 1 << 60

    def constrain(original: Callable[..., int], self: Any, tokens: int) -> int:
        return its_view.tokens

    def make_config(
        original: Callable[..., Any], self: Any, tokens: int, windows: int
    ) -> Any:
        return original(self, tokens, its_view.window_tokens(self, windows))

    def check_balance(original: Callable[..., None], **kwargs: Any) -> None:
        # No check: neighbours may take more of one GPU than of another.
        return

    def create_buffers(original: Callable[..., None], self: Any) -> None:
        with its_view.allocation(self):
            original(self)

    def sized_after_capture(
        original: Callable[..., bool], **kwargs: Any
    ) -> bool:
        return False

    return [
        (f"{_SCHEDULER}.Scheduler.init_memory_pools", init_pools),
        (f"{configurator}.configure", configure),
        (f"{configurator}._profile_available_bytes", profile),
        (f"{configurator}._apply_token_constraints", constrain),
        (
            "sglang.srt.model_executor.pool_configurator."
            "HybridSWAPoolConfigurator._make_pool_config",
            make_config,
        ),
        (
            "sglang.srt.distributed.bootstrap._check_tp_memory_balance",
            check_balance,
        ),
        (f"{pools}.MHATokenToKVPool._create_buffers_normal", create_buffers),
        (f"{pools}.MLATokenToKVPool._create_buffers", create_buffers),
        (
            "sglang.srt.model_executor.model_runner_components.kv_pool_runtime."
            "is_post_capture_kv_active",
            sized_after_capture,
        ),
    ]


def _event_loop(its_view: Any, parameters: Any) -> list[tuple[str, Any]]:
    from sglang.srt.managers.utils import is_health_check_generate_req

    scheduler = f"{_SCHEDULER}.Scheduler"

    def construct(
        original: Callable[..., None], self: Any, *args: Any, **kwargs: Any
    ) -> None:
        from fineserve_sglang.scheduler_leases import SchedulerLeases

        original(self, *args, **kwargs)
        its_view.constructed()
        leases = SchedulerLeases(self, its_view.ranks, its_view.tokens_ahead)
        setattr(self, _LEASES, leases)
        if parameters:
            parameters.constructed(self)

    def ingest_requests(
        original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
    ) -> Any:
        received = original(self, *args, **kwargs)
        leases_of(self).step_begins()
        return its_view.ranks.passed_on(received)

    def process_input_requests(
        original: Callable[..., Any], self: Any, requests: list[Any]
    ) -> Any:
        # An engine that is away is healthy. Checks must not bring it back.
        if not leases_of(self).is_away:
            return original(self, requests)
        others = []
        for request in requests:
            if is_health_check_generate_req(request):
                origin = getattr(request, "http_worker_ipc", None)
                self.return_health_check_ipcs.append(origin)
                self.maybe_send_health_check_signal()
            else:
                others.append(request)
        return original(self, others)

    def flush_cache(
        original: Callable[..., bool], self: Any, *args: Any, **kwargs: Any
    ) -> bool:
        # An engine that is away has already flushed everything; flushing would
        # need the device, and so the memory back.
        return leases_of(self).is_away or original(self, *args, **kwargs)

    def broadcast(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return its_view.ranks.broadcast(original, *args, **kwargs)

    def run_batch(
        original: Callable[..., Any],
        self: Any,
        batch: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        leases_of(self).launching()
        result = original(self, batch, *args, **kwargs)
        leases_of(self).launched(batch, result)
        return result

    def process_batch_result(
        original: Callable[..., Any], self: Any, batch: Any, result: Any
    ) -> Any:
        answer = original(self, batch, result)
        leases_of(self).processed(batch, result)
        return answer

    return [
        (f"{scheduler}.__init__", construct),
        (f"{scheduler}.ingest_requests", ingest_requests),
        (f"{scheduler}.process_input_requests", process_input_requests),
        (f"{scheduler}.flush_cache", flush_cache),
        (
            f"{_SCHEDULER}_components.request_receiver."
            "SchedulerRequestReceiver._broadcast_reqs_across_ranks",
            broadcast,
        ),
        (f"{scheduler}.run_batch", run_batch),
        (f"{scheduler}.process_batch_result", process_batch_result),
    ]
