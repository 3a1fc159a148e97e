"""This process's view of the shared pool, from registration to activation.

An engine is started for a view by $FINESERVE_VIEW: "1", or "required" if it
must not run without one (the shim then refuses device memory until the block
pool has been replaced, see fs_kv_progress).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fineserve_vllm import (
    kv_abi,
    kv_groups,
    lease_watch,
    ranks,
    registration,
    sleep,
    support,
    transfers,
)
from fineserve_vllm.log import logger
from fineserve_vllm.shim_grants import GroupGrants, ShimGrants
from fineserve_vllm.start import Start
from fineserve_vllm.view_format import ViewFormat, view_format

_log = logger(__name__)


def is_wanted() -> bool:
    return kv_abi.view_is_wanted()


class View:
    """The view of one engine.

    The worker calls register() before it allocates the KV cache; grants_for()
    is called while the scheduler is built, and constructed() after that, all in
    the scheduler's process. If an earlier call is missing, the next one raises
    RuntimeError, so that the engine does not start. Workers that are processes
    of their own (ranks.py) register there; then grants_for() activates them.

    Args:
        wake: makes the engine poll its grants; called from another thread.
        kv: what its sleep mode does with the KV cache.
        go_without: called if there is no pool and the engine may run all the
            same; the view is not used then.
    """

    def __init__(
        self,
        shim: kv_abi.Shim,
        wake: Callable[[], None],
        kv: sleep.Kv,
        go_without: Callable[[], None],
    ) -> None:
        self.start = Start(
            shim,
            prepared=lambda worker: sleep.wrap(worker, kv),
            go_without=go_without,
        )
        self.ranks = ranks.Ranks()
        self._registration = registration.Registration()
        self._shim = shim
        self._wake = wake
        self._kv = kv
        self._num_blocks = 0
        self._grants: ShimGrants | None = None
        self._taken = False

    def register(self, vllm_config: Any, kv_cache_config: Any) -> None:
        support.refuse(vllm_config)
        support.refuse_allocator()
        found = view_format(kv_cache_config, vllm_config)
        cap = self.start.cap(vllm_config.cache_config, found)
        is_rank = ranks.has_ranks(vllm_config)
        flags = kv_abi.RANK if is_rank else 0
        if transfers.receives(vllm_config):
            self._registration.defer(vllm_config)
            flags |= kv_abi.REGISTERED
        geometry = self._shim.register(
            _format(
                found,
                kv_groups.shape(kv_cache_config.kv_cache_groups, vllm_config),
                flags,
                0 if cap is None else cap.blocks,
            )
        )
        self._taken = False
        grants = ShimGrants(self._shim, geometry, found.blocks)
        if not is_rank:  # else the scheduler's process has them
            self._num_blocks = found.blocks
            self._grants = grants
        _log.info(
            "FineServe: the KV cache is a view of %d slabs of the shared pool: "
            "%d blocks of %d tokens, %d bytes in each of %d planes (layout %s), "
            "and %.2f %% of the slabs hold no whole block; "
            "%d slabs are always leased (--max-model-len), at most %d at a "
            "time (%s)",
            geometry.slab_count,
            found.blocks,
            found.block_tokens,
            found.page_bytes,
            found.planes,
            vllm_config.cache_config.kv_cache_layout,
            100 * self._lost(found, grants),
            geometry.floor_slabs,
            geometry.cap_slabs,
            "the whole pool" if cap is None else cap.flag,
        )

    def _lost(self, found: ViewFormat, grants: ShimGrants) -> float:
        """Returns the share of the slabs' bytes that is in no block:
        remainders if there are several planes, and blocks that straddle two
        slabs."""
        slabs = grants.slabs()
        usable = sum(len(slab.ids) for slab in slabs) * found.block_bytes
        whole = len(slabs) * self._shim.pool().slab_bytes
        return 1 - usable / whole if whole else 0

    def grants_for(self, num_blocks: int) -> ShimGrants:
        """Returns the grants for the one block pool of this process."""
        if self._grants is None and self.ranks.found:
            self._shim.progress(kv_abi.Stage.POOL_CONSTRUCTED)
            geometry = self.ranks.join(self._shim)
            sleep.wrap(self.ranks.executor, self._kv)
            self._num_blocks = num_blocks
            self._grants = GroupGrants(
                self._shim, geometry, num_blocks, self.ranks
            )
            _log.info(
                "FineServe: the block pool spans the GPUs of all workers: %d "
                "slabs, of which %d are always leased and at most %d at a time",
                geometry.slab_count,
                geometry.floor_slabs,
                geometry.cap_slabs,
            )
        if self._grants is None:
            raise RuntimeError(
                "FineServe: this engine's KV cache was not allocated in the "
                "scheduler's process: set --distributed-executor-backend uni, "
                "or unset FINESERVE_VIEW"
            )
        if self._taken or num_blocks != self._num_blocks:
            raise RuntimeError(
                f"FineServe: this process has one view, of {self._num_blocks} "
                f"blocks, and cannot serve another block pool ({num_blocks} "
                f"blocks): run one engine per process"
            )
        self._taken = True
        return self._grants

    def constructed(self) -> None:
        """Activates the view: the engine is warm, and its pool has leases."""
        grants = self._grants
        if grants is None or not self._taken:
            raise RuntimeError(
                "FineServe: the scheduler's block pool has no leases"
            )
        self._shim.progress(kv_abi.Stage.POOL_CONSTRUCTED)
        grants.activate()
        self._registration.view_is_active()
        threading.Thread(
            target=lease_watch.watch,
            args=(grants, self._wake),
            name="fineserve-leases",
            daemon=True,
        ).start()


def _format(
    found: ViewFormat, shape: kv_groups.Shape, flags: int, cap_blocks: int
) -> kv_abi.Format:
    groups = kv_abi.Format().groups
    for i, (kind, count) in enumerate(shape.groups):
        groups[i] = kv_abi.Groups(count, kind.block_tokens, kind.window)
    return kv_abi.Format(
        mode=kv_abi.Mode.VIEW,
        planes=found.planes,
        planes_per_allocation=found.planes,
        page_bytes=found.page_bytes,
        blocks=found.blocks,
        block_tokens=found.block_tokens,
        flags=flags,
        floor_blocks=found.floor_blocks,
        cap_blocks=cap_blocks,
        groups=groups,
        states=shape.states,
        filling_tokens=shape.filling,
        answering_tokens=shape.answering,
    )
