"""The plugin's uses of vLLM: the list behind the signatures.

Names are in one string for each class.

METHODS: (module, class) -> methods that the plugin calls, overrides or wraps.
ATTRIBUTES: (module, class) -> attributes that it reads or sets.
NAMES: module -> names in it that it replaces or uses.
FUNCTIONS: functions that it calls: (module, name) in the newest version, then
in those before.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import pathlib
import textwrap
from typing import Any

SIGNATURES = pathlib.Path(__file__).parent / "signatures"

_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"
_OFFLOADING = f"{_CONNECTORS}.offloading.scheduler"

METHODS = {
    ("vllm.v1.core.block_pool", "BlockPool"): (
        "__init__ get_new_blocks free_blocks touch evict_blocks "
        "unpin_blocks reset_prefix_cache get_num_free_blocks get_usage "
        "take_events _maybe_evict_cached_block _notify_reuse"
    ),
    ("vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue"): (
        "__init__ popleft popleft_n remove append append_n prepend_n "
        "get_all_free_blocks iter_blocks_after"
    ),
    ("vllm.v1.core.kv_cache_utils", "KVCacheBlock"): "set_block_hash",
    ("vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator"): "__init__",
    ("vllm.v1.core.kv_cache_manager", "KVCacheManager"): "get_block_ids",
    ("vllm.v1.core.sched.scheduler", "Scheduler"): (
        "__init__ schedule update_from_output has_requests "
        "has_unfinished_requests _preempt_request "
        "_handle_blocked_waiting_request _free_request_blocks"
    ),
    ("vllm.v1.core.sched.request_queue", "FCFSRequestQueue"): (
        "prepend_request remove_request"
    ),
    ("vllm.v1.engine.core", "EngineCore"): (
        "_initialize_kv_caches step step_with_batch_queue post_step"
    ),
    ("vllm.v1.engine.core", "EngineCoreProc"): "_process_input_queue has_work",
    ("vllm.model_executor.model_loader.base_loader", "BaseModelLoader"): (
        "load_model"
    ),
    ("vllm.v1.executor.uniproc_executor", "UniProcExecutor"): "collective_rpc",
    ("vllm.v1.worker.gpu_worker", "Worker"): (
        "_maybe_get_memory_pool_context determine_available_memory sleep "
        "wake_up discard update_max_model_len get_model"
    ),
    ("vllm.v1.worker.worker_base", "WorkerBase"): (
        "get_kv_cache_spec get_supported_kv_cache_layouts"
    ),
    ("vllm.v1.worker.worker_base", "WorkerWrapperBase"): (
        "init_device initialize_from_config"
    ),
}

ATTRIBUTES = {
    ("vllm.v1.core.block_pool", "BlockPool"): (
        "num_gpu_blocks blocks free_block_queue null_block _reuse_watchers"
    ),
    ("vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue"): (
        "num_free_blocks fake_free_list_head"
    ),
    ("vllm.v1.core.kv_cache_utils", "KVCacheBlock"): (
        "block_id ref_cnt prev_free_block next_free_block"
    ),
    ("vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator"): "block_pool",
    ("vllm.v1.core.kv_cache_manager", "KVCacheManager"): (
        "block_pool watermark_blocks"
    ),
    ("vllm.v1.core.sched.scheduler", "Scheduler"): (
        "kv_cache_manager running waiting pause_state num_spec_tokens "
        "prev_step_scheduled_req_ids max_num_scheduled_tokens "
        "max_num_running_reqs block_size connector kv_holding_waiting "
        "finished_recving_kv_req_ids _inflight_prefills"
    ),
    (f"{_CONNECTORS}.offloading_connector", "OffloadingConnector"): (
        "connector_scheduler"
    ),
    (_OFFLOADING, "OffloadingConnectorScheduler"): "_jobs _req_status",
    (_OFFLOADING, "TransferJobStatus"): (
        "is_store deferred_fence_block_ids fenced_block_ids"
    ),
    (_OFFLOADING, "RequestOffloadState"): "req group_states finished_signaled",
    (_OFFLOADING, "RequestGroupState"): "block_ids",
    ("vllm.v1.request", "Request"): (
        "status is_prefill_chunk num_computed_tokens num_tokens"
    ),
    ("vllm.v1.engine.core", "EngineCore"): "model_executor",
    ("vllm.v1.engine.core", "EngineCoreProc"): "input_queue",
    ("vllm.v1.worker.worker_base", "WorkerWrapperBase"): (
        "worker vllm_config global_rank"
    ),
    ("vllm.config.model", "ModelConfig"): (
        "enable_sleep_mode enable_cumem_allocator sleep_mode_backend is_moe is_hybrid "
        "is_attention_free max_model_len"
    ),
    ("vllm.config.vllm", "VllmConfig"): "use_v2_model_runner",
    ("vllm.config.offload", "OffloadConfig"): "uva prefetch",
    ("vllm.config.offload", "UVAOffloadConfig"): "cpu_offload_gb",
    ("vllm.config.offload", "PrefetchOffloadConfig"): "offload_group_size",
    ("vllm.config.parallel", "ParallelConfig"): (
        "data_parallel_size enable_eplb enable_elastic_ep "
        "enable_fault_tolerance"
    ),
    ("vllm.config.cache", "CacheConfig"): (
        "gpu_memory_utilization kv_cache_memory_bytes "
        "num_gpu_blocks_override kv_cache_layout"
    ),
    ("vllm.v1.kv_cache_interface", "KVCacheTensor"): (
        "size layers layer_stride block_stride offset host_resident"
    ),
    ("vllm.v1.kv_cache_interface", "KVCacheConfig"): (
        "num_blocks kv_cache_tensors kv_cache_groups"
    ),
}

NAMES = {
    "vllm.v1.core.kv_cache_coordinator": "BlockPool",
    "vllm.v1.engine": "EngineCoreRequestType",
}

FUNCTIONS = [
    [
        ("vllm.v1.core.kv_cache_planning", "get_global_kv_cache_groups"),
        ("vllm.v1.core.kv_cache_utils", "get_kv_cache_groups"),
    ],
]


def _class(key: tuple[str, str]) -> Any:
    return getattr(importlib.import_module(key[0]), key[1])


def _called(choices: list[tuple[str, str]]) -> tuple[str, Any]:
    """The first of these functions that there is, with its full name."""
    for module, name in choices:
        with contextlib.suppress(ImportError, AttributeError):
            found = getattr(importlib.import_module(module), name)
            return f"{module}.{name}", found
    raise AttributeError(f"none of {choices}")


def _parameters(function: Any) -> list[list[Any]]:
    """[name, kind, whether it has a default] per parameter."""
    return [
        [p.name, p.kind.name, p.default is not p.empty]
        for p in inspect.signature(function).parameters.values()
    ]


def _assigned(cls: Any) -> set[str]:
    """Names assigned to self in __init__, or fields of a dataclass, and
    properties."""
    names = set(getattr(cls, "__dataclass_fields__", ()))
    if "__init__" in vars(cls) and not names:
        source = textwrap.dedent(inspect.getsource(cls.__init__))
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                names.add(node.attr)
    return names | {
        name for name, value in vars(cls).items() if isinstance(value, property)
    }


def record() -> dict[str, Any]:
    """The seams of the `vllm` that imports resolve to."""
    methods = {
        f"{key[0]}.{key[1]}.{name}": _parameters(getattr(_class(key), name))
        for key, names in METHODS.items()
        for name in names.split()
    }
    attributes = {
        f"{key[0]}.{key[1]}.{name}": name in _assigned(_class(key))
        for key, names in ATTRIBUTES.items()
        for name in names.split()
    }
    names = {
        f"{module}.{name}": hasattr(importlib.import_module(module), name)
        for module, expected in NAMES.items()
        for name in expected.split()
    }
    functions = {
        name: _parameters(function)
        for name, function in map(_called, FUNCTIONS)
    }
    return {
        "methods": methods,
        "attributes": attributes,
        "names": names,
        "functions": functions,
    }


def dump(seams: dict[str, Any]) -> str:
    """JSON with one line per entry, so that a release reads as a diff."""
    parts = [
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items()
        )
        + "\n}"
        for part, entries in seams.items()
    ]
    return "{" + ",\n".join(parts) + "}\n"
