"""Puts the leased pool into vLLM.

register() is the entry point (group vllm.general_plugins); vLLM calls it in the
API server, EngineCore and workers, possibly more than once. Under the preloaded
shim it marks the KV allocation (kv_scope.py); in an engine that was started for
a view of the shared pool (view.py) it also calls install(), which replaces the
name BlockPool that KVCacheCoordinator constructs, and wraps methods of
Scheduler (AsyncScheduler inherits them) and of EngineCoreProc, and start.py
sets what a view needs. All that vLLM could change to break this is named here,
in kv_scope.py, start.py, pool.py and free_queue.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from fineserve_vllm import (
    kv_abi,
    kv_groups,
    kv_scope,
    last_words,
    loaded_requests,
    ranks,
    receives,
    sleep,
    support,
    transfers,
    view,
    wake,
    weights,
)
from fineserve_vllm.demand import Demand
from fineserve_vllm.engine_leases import AskBackOptions, EngineLeases
from fineserve_vllm.fence import StepFence
from fineserve_vllm.log import logger
from fineserve_vllm.pool import GrantsFactory, LeasedBlockPool

_log = logger(__name__)

_LEASES = "_fineserve_leases"  # attribute of Scheduler instances

_undo: list[Callable[[], None]] = []
_engine_core_wrapped = False
_registered = False

_engines: weakref.WeakSet[EngineLeases] = weakref.WeakSet()
_engines_lock = threading.Lock()


def register() -> None:
    """vLLM's plugin hook. Without the preload nothing happens; without a view
    vLLM keeps its own block pool.

    Raises:
        RuntimeError: a view is wanted and this vLLM lacks a name that the
            plugin relies on; nothing has been changed.
    """
    global _registered
    if _registered or not kv_abi.preloaded():
        return
    if view.is_wanted():
        last_words.install()
        _use_view(kv_abi.Shim())
    else:
        try:
            kv_scope.install(kv_abi.Shim())
        except RuntimeError as error:
            _log.warning("%s; its KV cache is not marked as KV", error)
    if kv_abi.may_be_evicted():
        _name_parameters(kv_abi.Shim())
    _registered = True


def _name_parameters(shim: kv_abi.Shim) -> None:
    try:
        weights.install(shim)
    except RuntimeError as error:
        _log.warning("%s; no replica can read its parameters", error)


def _use_view(shim: kv_abi.Shim) -> None:
    shim.progress(kv_abi.Stage.PLUGIN_LOADED)
    its_view = view.View(
        shim,
        wake_all,
        sleep.Kv(suspend_all, resume_all),
        go_without=functools.partial(_go_without_view, shim),
    )
    install(
        its_view.grants_for,
        constructed=its_view.constructed,
        finish_ranks=its_view.ranks.finish,
    )
    try:
        core = sys.modules.get("vllm.v1.engine.core")
        if core is not None:  # not in a worker
            _undo.append(its_view.ranks.install(core))
        _undo.append(its_view.start.install())
        kv_scope.install(shim, its_view.register)
    except RuntimeError:
        uninstall()
        raise
    shim.progress(kv_abi.Stage.POOL_REPLACED)


def _go_without_view(shim: kv_abi.Shim) -> None:
    """Makes the engine run without a view. Called before the scheduler is built
    and the KV cache is allocated."""
    uninstall()
    kv_scope.uninstall()
    kv_scope.install(shim)


def install(
    grants_factory: GrantsFactory,
    *,
    ask_back: AskBackOptions = AskBackOptions(),
    constructed: Callable[[], None] | None = None,
    finish_ranks: Callable[[], None] | None = None,
    refuse_unsupported: bool = True,
) -> None:
    """Makes every scheduler built from now on live on leases.

    `constructed` is called when a scheduler has its leased pool; its exceptions
    leave the scheduler's constructor. `finish_ranks` waits for the devices of
    all workers, where these are other processes. Calling install() again replaces the
    arguments. refuse_unsupported=False is for tests of the pool where leases
    are not supported yet.

    Raises:
        RuntimeError: this vLLM lacks a name that the plugin relies on; nothing
            has been changed.
    """
    uninstall()
    try:
        coordinator = importlib.import_module(
            "vllm.v1.core.kv_cache_coordinator"
        )
        scheduler = importlib.import_module("vllm.v1.core.sched.scheduler")
        _set(coordinator, "BlockPool", LeasedBlockPool)
        _wrap_scheduler(
            scheduler.Scheduler,
            ask_back,
            constructed,
            finish_ranks,
            refuse_unsupported,
        )
    except (AttributeError, ImportError) as error:
        uninstall()
        raise RuntimeError(
            f"FineServe: this vLLM version is not supported: {error}"
        ) from error
    LeasedBlockPool.grants_factory = staticmethod(grants_factory)


def uninstall() -> None:
    """Restores vLLM's scheduler and worker for every engine built from now
    on."""
    global _engine_core_wrapped
    while _undo:
        _undo.pop()()
    _engine_core_wrapped = False
    LeasedBlockPool.grants_factory = None


def leases_of(scheduler: Any) -> EngineLeases | None:
    """Returns the leases of a Scheduler; None if it was built without
    leases."""
    return getattr(scheduler, _LEASES, None)


def _all_engines() -> list[EngineLeases]:
    """Returns the engines of this process; with a view there is only one."""
    with _engines_lock:
        return list(_engines)


def wake_all() -> None:
    """Makes every engine of this process poll its grants. Any thread."""
    for engine in _all_engines():
        engine.wake()


def _fence_for(
    vllm_config: Any, finish_ranks: Callable[[], None] | None
) -> StepFence:
    """Returns the fence for an engine. A step counts as processed when the
    tokens of one worker are there; what other workers, a drafter and the move
    of a state still write then ends one step later."""
    if finish_ranks is not None and ranks.has_ranks(vllm_config):
        return StepFence(finish=finish_ranks)
    if support.step_writes_after_its_tokens(vllm_config):
        return StepFence(finish=_finish_device)
    return StepFence()


def suspend_all() -> None:
    """Suspends the KV cache of this process; see EngineLeases.suspend()."""
    for engine in _all_engines():
        engine.suspend()


def resume_all() -> bool:
    """Resumes the KV cache of this process; see EngineLeases.resume()."""
    return any([engine.resume() for engine in _all_engines()])


def _finish_device(device: int | None = None) -> None:
    """Waits until a device has finished; by default this thread's device."""
    import torch

    torch.cuda.synchronize(device)


def _this_device() -> int | None:
    """Returns PyTorch's current device in this thread; None before there is
    one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    device: int = torch.cuda.current_device()
    return device


def _set(owner: Any, name: str, value: Any) -> None:
    original = vars(owner).get(name)
    if original is None:
        raise AttributeError(f"{owner.__name__} defines no {name}")
    setattr(owner, name, value)
    _undo.append(lambda: setattr(owner, name, original))


def _wrap(cls: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replaces a method; wrapper takes the original, self and the arguments."""
    original = vars(cls).get(name)
    if original is None:
        raise AttributeError(f"{cls.__name__} defines no {name}")

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    _set(cls, name, wrapped)


def _wrap_scheduler(
    cls: type,
    ask_back: AskBackOptions,
    constructed: Callable[[], None] | None,
    finish_ranks: Callable[[], None] | None,
    refuse_unsupported: bool,
) -> None:
    def construct(
        original: Callable[..., None], self: Any, *args: Any, **kwargs: Any
    ) -> None:
        given = inspect.signature(original).bind(self, *args, **kwargs)
        if refuse_unsupported:
            support.refuse(given.arguments["vllm_config"])
            support.refuse_scheduler_class(type(self), cls)
        original(self, *args, **kwargs)
        pool = self.kv_cache_manager.block_pool
        if not isinstance(pool, LeasedBlockPool):
            raise RuntimeError(
                f"FineServe: this vLLM version is not supported: its scheduler "
                f"built a {type(pool).__name__} instead of the leased pool"
            )
        pool.fence = _fence_for(given.arguments["vllm_config"], finish_ranks)
        pool.held_by_connector = transfers.held_blocks(self)
        received = None
        if transfers.receives(given.arguments["vllm_config"]):
            received = receives.Receives()
            pool.held_by_connector = received.blocks
        groups = kv_groups.taken(
            given.arguments["kv_cache_config"], given.arguments["vllm_config"]
        )
        demand = Demand(self, groups)
        spans = ranks.has_ranks(given.arguments["vllm_config"])
        finish = functools.partial(_finish_device, _this_device())
        engine = EngineLeases(
            self,
            pool,
            demand.blocks,
            ask_back,
            answers_between_steps=not spans,
            loaded=loaded_requests.watch(self, pool),
            receives=received,
            finish_device=finish_ranks if finish_ranks and spans else finish,
            steps_with_others=support.steps_with_other_engines(
                given.arguments["vllm_config"]
            ),
        )
        setattr(self, _LEASES, engine)
        with _engines_lock:
            _engines.add(engine)
        _wrap_engine_core()
        if constructed is not None:
            constructed()
            pool.apply(pool.grants.poll())

    def schedule(
        original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
    ) -> Any:
        engine = leases_of(self)
        if engine is None:
            return original(self, *args, **kwargs)
        with engine.pool.held_by_scheduler:
            engine.schedule_begins()
            output = original(self, *args, **kwargs)
            engine.schedule_ends(output)
        return output

    def update_from_output(
        original: Callable[..., Any],
        self: Any,
        scheduler_output: Any,
        model_runner_output: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        engine = leases_of(self)
        given = (scheduler_output, model_runner_output, *args)
        if engine is None:
            return original(self, *given, **kwargs)
        with engine.pool.held_by_scheduler:
            result = original(self, *given, **kwargs)
            engine.step_processed(scheduler_output, model_runner_output)
        return result

    def has_requests(original: Callable[..., bool], self: Any) -> bool:
        engine = leases_of(self)
        has = original(self)
        return has if engine is None else engine.has_work(has)

    _wrap(cls, "__init__", construct)
    _wrap(cls, "schedule", schedule)
    _wrap(cls, "update_from_output", update_from_output)
    _wrap(cls, "has_requests", has_requests)


def _wrap_engine_core() -> None:
    """Gives the leases of an EngineCoreProc a way to wake it, and notifies them
    when an EngineCore has launched its steps.

    When a scheduler is built, the engine's module has been imported and the
    engine's constructor is running: methods that it calls later can still be
    wrapped.
    """
    global _engine_core_wrapped
    core = sys.modules.get("vllm.v1.engine.core")
    if core is None or _engine_core_wrapped:
        return

    def process_input_queue(original: Callable[..., Any], self: Any) -> Any:
        engine = leases_of(self.scheduler)
        if engine is not None and not engine.attached:
            engine.attach(wake.poster(self.input_queue))
        return original(self)

    def step(original: Callable[..., Any], self: Any) -> Any:
        engine = leases_of(self.scheduler)
        if engine is not None and not engine.can_step():
            return {}, False
        return original(self)

    def post_step(
        original: Callable[..., None], self: Any, *args: Any, **kwargs: Any
    ) -> None:
        original(self, *args, **kwargs)
        engine = leases_of(self.scheduler)
        if engine is not None:
            engine.steps_launched()

    _wrap(core.EngineCoreProc, "_process_input_queue", process_input_queue)
    for name in ("step", "step_with_batch_queue"):
        _wrap(core.EngineCore, name, step)
    _wrap(core.EngineCore, "post_step", post_step)
    _engine_core_wrapped = True
