"""This process's view of the shared pool, from SGLang's sizing of its KV cache
to activation.

SGLang makes one tensor a layer: keys and values behind one another, two planes;
or latents, one plane. (0.5.22 makes one for keys and one for values.) By itself it sizes them by the memory that is free while
it starts. A view covers the whole pool, whatever is free now; what the user has
set about the size limits what may be leased instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import threading
from collections.abc import Sequence
from typing import Any

from fineserve_vllm import kv_abi, kv_scope, lease_watch
from fineserve_vllm.shim_grants import ShimGrants
from fineserve_vllm.support import refuse_allocator

from fineserve_sglang import support
from fineserve_sglang.ranks import Ranks

_log = logging.getLogger(__name__)

# Granularity of cuMemMap on every GPU we know; the shim checks it against the
# driver's.
GRANULARITY = 2 << 20  # bytes

# Number of requests that a pool of sliding windows or of states has room for,
# unless the user sets how many may run. Heuristic.
_REQUESTS = 256


@dataclasses.dataclass(frozen=True)
class Format:
    """A page in each plane of each layer's tensor.

    longest: tokens of the longest request.
    """

    layers: int
    token_bytes: int  # in one plane
    page: int  # tokens
    longest: int
    tensor_planes: int = 2  # of a layer: keys and values; latents have 1

    @property
    def planes(self) -> int:
        return self.tensor_planes * self.layers

    @property
    def page_bytes(self) -> int:
        return self.page * self.token_bytes

    @property
    def floor_pages(self) -> int:
        """Returns the pages needed for the longest request. SGLang keeps one
        page free besides."""
        return -(-self.longest // self.page) + 2

    def pages(self, pool: kv_abi.Pool) -> int:
        """For the whole pool and a slab of scratch. A little longer if a plane
        would not end on a granule.

        Raises:
            RuntimeError: the pool's slabs are too small for so many planes.
        """
        granules = pool.slab_bytes // pool.granule_bytes // self.planes
        if granules == 0:
            least = self.planes * GRANULARITY
            raise RuntimeError(
                f"FineServe: an SGLang model of {self.layers} layers needs "
                f"slabs of {self.planes} granules and the pool's have "
                f"{pool.slab_bytes // pool.granule_bytes}: start fineserved "
                f"with --slab {least >> 20}MiB --planes {self.planes}"
            )
        share = (pool.slab_count + 1) * granules * pool.granule_bytes
        step = GRANULARITY // math.gcd(GRANULARITY, self.page_bytes)
        return -(-share // (self.page_bytes * step)) * step


def _planes_of_a_tensor(found: Format) -> int:
    return found.tensor_planes if support.sglang_version() >= (0, 5, 23) else 1


def _tokens_ahead() -> int:
    """Returns the tokens for which a running request has room beyond those that
    it has: the drafts of the step in flight and of the next step."""
    from sglang.srt.mem_cache.allocation_sizing import (
        get_alloc_reserve_per_decode,
    )
    from sglang.srt.runtime_context import get_spec

    if get_spec().speculative_algorithm is None:
        return 0
    return int(get_alloc_reserve_per_decode())


def _tokens_of_windows(sizes: Any, longest: int) -> int:
    """Returns the most tokens that running requests have in layers of sliding
    windows. While fewer requests run, the rest of the pool keeps prefixes.
    `longest`: tokens of the longest prompt."""
    from sglang.srt.environ import envs
    from sglang.srt.runtime_context import get_schedule

    schedule = get_schedule()
    requests = schedule.max_running_requests or _REQUESTS
    # Two steps are in flight.
    step = schedule.chunked_prefill_size or 0
    prompts = 2 * step if step > 0 else longest
    # SGLang frees the tokens behind a window in portions of this size.
    late = max(1, envs.SGLANG_SWA_EVICTION_INTERVAL.get())
    window = sizes._sliding_window_size + late + 2 * sizes._page_size
    return int(requests * window + prompts + sizes._page_size)


def _layers(configurator: Any) -> int:
    """Returns the number of the model's layers that are on the view."""
    layers = configurator.layer_info
    if configurator.mambaish_config is not None:
        return len(configurator.mambaish_config.full_attention_layer_ids)
    if configurator.is_hybrid_swa:
        return len(layers.full_attention_layer_ids)
    return int(layers.num_effective_layers)


def _planes_and_bytes(runner: Any) -> tuple[int, int]:
    """Returns the number of planes of a layer, and a token's bytes in each
    plane. Takes SGLang's KVCacheConfigurator or ModelRunner."""
    from sglang.srt.runtime_context import get_parallel

    model = runner.model_config
    if runner.use_mla_backend:
        planes, elements = 1, model.kv_lora_rank + model.qk_rope_head_dim
    else:
        parallel = get_parallel()
        heads = model.get_num_kv_heads(
            parallel.attn_tp_size, parallel.attn_dcp_size
        )
        planes, elements = 2, heads * model.head_dim
    return planes, elements * runner.kv_cache_dtype.itemsize


def _format(
    configurator: Any, drafters: Sequence[Any], ahead: int
) -> Format:
    """Returns the view's format, including the layers of `drafters`, whose KV
    has the same slots. `ahead`: tokens of a request's drafts."""
    planes, token_bytes = _planes_and_bytes(configurator)
    for drafter in drafters:
        its_planes, its_bytes = _planes_and_bytes(drafter)
        if (its_planes, its_bytes) != (planes, token_bytes):
            raise RuntimeError(
                f"FineServe: a draft model whose KV takes {its_planes} times "
                f"{its_bytes} bytes a token and layer, and not {planes} times "
                f"{token_bytes} as the model's, is not supported yet: set "
                f"another --speculative-draft-model-path, or unset "
                f"FINESERVE_VIEW"
            )
    return Format(
        layers=_layers(configurator)
        + sum(drafter.layer_info.num_effective_layers for drafter in drafters),
        token_bytes=token_bytes,
        page=configurator.page_size,
        longest=configurator.model_config.context_len + ahead,
        tensor_planes=planes,
    )


class View:
    """The view of one scheduler. SGLang calls, in this order, drafts(),
    configure(), tokens(), allocation(), grants_for() and constructed(). If a
    call is missing, a later one raises RuntimeError, so that the engine does
    not start. For each draft model, SGLang calls configure() and allocation()
    again."""

    def __init__(self, shim: kv_abi.Shim) -> None:
        self.ranks = Ranks()
        self.tokens_ahead = 0  # fineserve_sglang.demand
        self._shim = shim
        self._format: Format | None = None
        self._pages = 0
        self._cap_pages: int | None = None  # None: no limit
        self._window_tokens: int | None = None  # None: no pool of windows
        self._grants: ShimGrants | None = None
        self._taken = False
        self._hooks: list[str] = []
        self._drafters: Sequence[Any] = ()

    def needs(self, hooks: list[str]) -> None:
        """Sets the names in SGLang that must be hooked before memory is
        allocated: if a hook fails, SGLang's registry only logs that."""
        self._hooks = hooks

    def drafts(self, drafters: Sequence[Any]) -> None:
        """Takes the ModelRunners of the engine's draft models."""
        self._drafters = drafters

    def configure(self, configurator: Any) -> None:
        """Chooses the format before SGLang sizes its pools."""
        self._require_hooks()
        support.refuse(configurator.server_args)
        support.refuse_model(configurator)
        if configurator.is_draft_worker:
            return  # its layers are in the format already
        refuse_allocator()
        self.tokens_ahead = _tokens_ahead()
        found = _format(configurator, self._drafters, self.tokens_ahead)
        pool = self._shim.pool()
        self.ranks.find()
        self.ranks.check_stages(found.layers)
        # The pools of several GPUs may differ.
        self._format, self._pages = found, self.ranks.least(found.pages(pool))
        needed = found.floor_pages * found.page_bytes * found.planes
        most = pool.slab_count * pool.slab_bytes
        if needed > most:
            raise RuntimeError(
                f"FineServe: the longest request (--context-length "
                f"{found.longest}) takes {-(-needed >> 20)} MiB of KV cache, "
                f"and the pool has {most >> 20} MiB: lower --context-length, "
                f"or start fineserved with a larger --pool"
            )
        self._cap_pages = self._cap(found)

    def _require_hooks(self) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry

        missing = set(self._hooks) - HookRegistry._patched
        if missing:
            raise RuntimeError(
                f"FineServe: this SGLang version is not supported: "
                f"{min(missing)} could not be hooked"
            )

    def _cap(self, found: Format) -> int | None:
        """Returns the user's limit on the size, in pages; None if it does not
        restrict the view."""
        import torch
        from sglang.srt.runtime_context import get_schedule

        schedule = get_schedule()
        if schedule.max_total_tokens is not None:
            flag = f"--max-total-tokens {schedule.max_total_tokens}"
            pages = schedule.max_total_tokens // found.page
        else:
            share = schedule.mem_fraction_static
            flag = f"--mem-fraction-static {share}"
            _, total = torch.cuda.mem_get_info()
            room = total * share - torch.cuda.max_memory_reserved()
            pages = max(0, int(room)) // (found.page_bytes * found.planes)
        if pages < found.floor_pages:
            raise RuntimeError(
                f"FineServe: {flag} leaves room for {pages * found.page} "
                f"tokens of KV cache, and the longest request takes "
                f"{found.floor_pages * found.page}: raise it or lower "
                f"--context-length"
            )
        return pages if pages < self._pages else None

    @property
    def tokens(self) -> int:
        """Returns the number of tokens that SGLang must allocate besides its
        padding page."""
        assert self._format is not None
        return (self._pages - 1) * self._format.page

    def window_tokens(self, sizes: Any, tokens: int) -> int:
        """Returns the size of the pool that SGLang gives to layers of sliding
        windows. The pool is the engine's own memory, outside the view.
        `tokens`: the pool's share of the view's size, which the user may have
        set. Takes SGLang's HybridSWAPoolConfigurator."""
        import torch
        from sglang.srt.runtime_context import get_schedule

        assert self._format is not None
        if not get_schedule()._swa_full_tokens_ratio_explicitly_set:
            free, _ = torch.cuda.mem_get_info()
            tokens = min(
                tokens,
                _tokens_of_windows(sizes, self._format.longest),
                free // 2 // sizes._swa_cell_bytes(),
            )
        tokens = tokens // sizes._page_size * sizes._page_size
        sizes.validate_swa_pool_size(
            tokens, sizes._sliding_window_size, sizes._page_size
        )
        self._window_tokens = tokens
        return tokens

    def size_states(self, configurator: Any) -> None:
        """Chooses how many requests and prefixes have a state in state-space
        layers, unless the user has set it (--max-mamba-cache-size). The states
        are in the engine's own memory."""
        import torch
        from sglang.srt.runtime_context import get_context, get_schedule

        schedule = get_schedule()
        free, _ = torch.cuda.mem_get_info()
        if schedule.max_mamba_cache_size is None:
            requests = schedule.max_running_requests or _REQUESTS
            cache = configurator.mambaish_config.mamba2_cache_params
            get_context().override(
                "fineserve",
                max_mamba_cache_size=min(
                    # As many again keep prefixes.
                    2 * requests * configurator._calculate_mamba_ratio(),
                    free // 2 // cache.mamba_cache_per_req,
                ),
            )
        configurator._handle_max_mamba_cache(free / (1 << 30))

    def allocation(self, pool: Any) -> contextlib.AbstractContextManager[None]:
        """Registers the view and returns a context. The tensors of SGLang's
        MHATokenToKVPool or MLATokenToKVPool must be made in that context, the
        model's first."""
        found = self._format
        if self._is_of_windows(pool):
            return contextlib.nullcontext()
        if found is None or (pool.size, pool.page_size) != (
            self.tokens,
            found.page,
        ):
            raise RuntimeError(
                f"FineServe: this SGLang version is not supported: its KV "
                f"cache has {pool.size} tokens and not those of the view"
            )
        if self._grants is None:
            self._register(found)
        return kv_scope.scope(contextlib.nullcontext(), self._shim)

    def _is_of_windows(self, pool: Any) -> bool:
        """Returns True for the pool of sliding windows, which SGLang makes
        after the model's pool."""
        return self._grants is not None and pool.size == self._window_tokens

    def _register(self, found: Format) -> None:
        geometry = self._shim.register(
            kv_abi.Format(
                mode=kv_abi.Mode.VIEW,
                planes=found.planes,
                planes_per_allocation=_planes_of_a_tensor(found),
                page_bytes=found.page_bytes,
                blocks=self._pages,
                block_tokens=found.page,
                flags=kv_abi.RANK if self.ranks.are_several else 0,
                floor_blocks=found.floor_pages,
                cap_blocks=self._cap_pages or 0,
            )
        )
        self._grants = self.ranks.grants(self._shim, geometry, self._pages)
        _log.info(
            "FineServe: the KV cache is a view of %d slabs of the shared pool: "
            "%d pages of %d tokens, %d bytes in each of %d planes; %d slabs "
            "are always leased (--context-length), at most %d at a time",
            geometry.slab_count,
            self._pages,
            found.page,
            found.page_bytes,
            found.planes,
            geometry.floor_slabs,
            geometry.cap_slabs,
        )

    def grants_for(self, pages: int) -> ShimGrants | None:
        """Returns the grants for the one allocator of this process whose pages
        are on the view; None for the next allocator, which is for windows."""
        assert self._format is not None
        if self._taken and (pages - 1) * self._format.page == (
            self._window_tokens
        ):
            return None
        if self._grants is None or self._taken or pages != self._pages:
            raise RuntimeError(
                "FineServe: an SGLang with such a KV cache is not supported "
                "yet: unset FINESERVE_VIEW"
            )
        self._taken = True
        return self._grants

    def constructed(self) -> None:
        """Activates the view: the engine is warm, and its allocator has
        leases."""
        if self._grants is None or not self._taken:
            raise RuntimeError("FineServe: SGLang's allocator has no leases")
        self._shim.progress(kv_abi.Stage.POOL_CONSTRUCTED)
        self._grants.activate()
        self.ranks.join(self._shim)
        if not self.ranks.is_first:
            return
        # The scheduler polls by itself; the thread is needed to find a daemon
        # again after it was lost.
        threading.Thread(
            target=lease_watch.watch,
            args=(self._grants, lambda: None),
            name="fineserve-leases",
            daemon=True,
        ).start()
