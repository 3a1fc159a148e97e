"""vLLM's KV allocation, and nothing else, is in a scope of the shim.

The scope itself on any Python; both model runners and the worker on real vLLM.
"""

from __future__ import annotations

import contextlib
import types
import unittest
from typing import Any
from unittest import mock

import doubles

REAL = doubles.prepare()

from fineserve_vllm import kv_abi, kv_scope  # noqa: E402


class FakeShim:
    """Counts as fs_kv_begin/end do."""

    def __init__(self) -> None:
        self.depth = 0
        self.scopes = 0

    def begin(self) -> None:
        self.depth += 1
        self.scopes += 1

    def end(self) -> None:
        self.depth -= 1


class NoShimTest(unittest.TestCase):
    def test_without_the_preload_there_is_no_shim(self) -> None:
        self.assertFalse(kv_abi.preloaded())


@unittest.skipUnless(REAL, "needs vLLM")
class WorkerTest(unittest.TestCase):
    """Drives a GPU worker as WorkerWrapperBase does, but without a GPU."""

    def setUp(self) -> None:
        import transformers  # noqa: F401  before vLLM's workers
        import vllm.v1.core.sched.scheduler  # noqa: F401
        from vllm.v1.worker import gpu_worker, worker_base

        self.shim = FakeShim()
        kv_scope.install(self.shim)
        self.addCleanup(kv_scope.uninstall)
        gpu = types.SimpleNamespace(
            is_cuda_alike=lambda: True,
            is_xpu=lambda: False,
            is_cpu=lambda: False,
        )
        for name, value in (
            ("ensure_kv_transfer_initialized", lambda *args: None),
            ("has_kv_transfer_group", lambda: False),
            ("current_platform", gpu),
        ):
            patch = mock.patch.object(gpu_worker, name, value)
            patch.start()
            self.addCleanup(patch.stop)

        worker = object.__new__(gpu_worker.Worker)
        worker.cache_config = types.SimpleNamespace()
        worker.vllm_config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(
                enable_cumem_allocator=False, enable_sleep_mode=False
            )
        )
        worker.model_runner = types.SimpleNamespace(
            initialize_kv_cache=self.initialize_kv_cache
        )
        self.worker = worker
        self.wrapper = object.__new__(worker_base.WorkerWrapperBase)
        self.wrapper.worker = worker
        self.wrapper.global_rank = 0
        self.wrapper.vllm_config = worker.vllm_config
        self.allocate: Any = None

    def initialize_kv_cache(
        self, config: Any, *, kv_cache_allocation_context: Any
    ) -> None:
        self.assertEqual(self.shim.depth, 0, "more than the KV in the scope")
        self.allocate(config, kv_cache_allocation_context)
        self.assertEqual(self.shim.depth, 0)

    def start(self, allocate: Any) -> None:
        from vllm.v1.worker import worker_base

        self.allocate = allocate
        config = types.SimpleNamespace(
            num_blocks=4,
            kv_cache_layout=None,
            hash_block_size=16,
            cache_hit_alignment_tokens=None,
            needs_kv_cache_zeroing=False,
            kv_cache_tensors=[],
            kv_cache_groups=[],
        )
        with mock.patch.object(
            worker_base,
            "set_current_vllm_config",
            lambda config: contextlib.nullcontext(),
        ):
            self.wrapper.initialize_from_config([config])

    def allocator_of(self, module: Any) -> Any:
        """Replaces a runner's allocate_kv_cache with one that checks that the
        scope is open."""

        def allocate_kv_cache(*args: Any) -> dict[str, Any]:
            self.assertEqual(self.shim.depth, 1)
            return {}

        return mock.patch.object(
            module, "allocate_kv_cache", side_effect=allocate_kv_cache
        )

    def test_the_first_runner_allocates_in_the_scope(self) -> None:
        from vllm.v1.worker import gpu_model_runner

        runner = mock.MagicMock(shared_kv_cache_layers={})

        def allocate(config: Any, context: Any) -> None:
            gpu_model_runner.GPUModelRunner.initialize_kv_cache_tensors(
                runner, config, [], context
            )

        with (
            self.allocator_of(gpu_model_runner) as allocator,
            mock.patch.object(gpu_model_runner, "bind_kv_cache"),
        ):
            self.start(allocate)
            allocator.assert_called_once()
        self.assertEqual(self.shim.scopes, 1)

    def test_the_first_runners_profiling_cache_is_outside(self) -> None:
        from vllm.v1.worker import gpu_model_runner

        self.start(lambda config, context: None)
        with (
            mock.patch.object(
                gpu_model_runner,
                "allocate_kv_cache",
                side_effect=lambda *a: self.assertEqual(self.shim.depth, 0)
                or {},
            ) as allocator,
            mock.patch.object(gpu_model_runner, "bind_kv_cache"),
        ):
            # As in _init_minimal_kv_cache_for_profiling, there is no context.
            gpu_model_runner.GPUModelRunner.initialize_kv_cache_tensors(
                mock.MagicMock(shared_kv_cache_layers={}),
                types.SimpleNamespace(kv_cache_groups=[]),
                [],
            )
            allocator.assert_called_once()

    def test_the_second_runner_allocates_in_the_scope(self) -> None:
        from vllm.v1.worker.gpu import attn_utils

        vllm_config = mock.MagicMock()
        vllm_config.attention_config.hisparse_config = None

        def allocate(config: Any, context: Any) -> None:
            attn_utils.init_kv_cache(
                {},
                config,
                "cpu",
                [],
                vllm_config,
                kv_cache_allocation_context=context,
            )

        with (
            self.allocator_of(attn_utils) as allocator,
            mock.patch.object(
                attn_utils, "get_shared_kv_cache_layers", return_value={}
            ),
            mock.patch.object(attn_utils, "bind_kv_cache_to_layers"),
        ):
            self.start(allocate)
            allocator.assert_called_once()
        self.assertEqual(self.shim.scopes, 1)

    def test_the_scope_closes_when_the_allocation_fails(self) -> None:
        def allocate(config: Any, context: Any) -> None:
            with context:
                raise MemoryError

        with self.assertRaises(MemoryError):
            self.start(allocate)
        self.assertEqual(self.shim.depth, 0)

    def test_other_contexts_of_the_worker_stay_vllms(self) -> None:
        self.start(lambda config, context: None)
        with self.worker._maybe_get_memory_pool_context("weights"):
            self.assertEqual(self.shim.depth, 0)

    def test_a_view_is_not_allocated_by_vllms_cumem_allocator(self) -> None:
        kv_scope.uninstall()
        kv_scope.install(self.shim, lambda *found: None)
        self.worker.vllm_config.model_config.enable_cumem_allocator = True
        tags: list[str] = []
        allocator = types.SimpleNamespace(
            use_memory_pool=lambda tag: tags.append(tag)
            or contextlib.nullcontext(),
            get_current_usage=lambda: 0,
        )

        def allocate(config: Any, context: Any) -> None:
            with context:
                self.assertEqual(self.shim.depth, 1)

        from vllm.v1.worker import gpu_worker

        with mock.patch.object(
            gpu_worker, "get_mem_allocator_instance", lambda: allocator
        ):
            self.start(allocate)
            self.worker._maybe_get_memory_pool_context("weights")
        self.assertEqual(self.shim.scopes, 1)
        self.assertEqual(tags, ["runtime", "weights"])

    def test_earlier_hook_sees_the_workers_configuration(
        self,
    ) -> None:
        kv_scope.uninstall()
        calls: list[Any] = []
        kv_scope.install(
            self.shim, lambda *found: calls.append((*found, self.shim.scopes))
        )

        def allocate(config: Any, context: Any) -> None:
            with context:
                calls.append(config)

        self.start(allocate)
        self.assertEqual(
            calls, [(self.worker.vllm_config, calls[1], 0), calls[1]]
        )
        self.assertEqual(calls[1].num_blocks, 4)

    def test_installing_twice_opens_one_scope(self) -> None:
        kv_scope.install(self.shim)

        def allocate(config: Any, context: Any) -> None:
            with context:
                self.assertEqual(self.shim.depth, 1)

        self.start(allocate)
        self.assertEqual(self.shim.scopes, 1)

    def test_a_worker_without_the_context_is_left_alone(self) -> None:
        started = []
        self.wrapper.worker = types.SimpleNamespace(
            initialize_from_config=started.append
        )
        self.start(None)
        self.assertEqual((len(started), self.shim.scopes), (1, 0))
