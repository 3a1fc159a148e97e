"""Which memory a worker names as parameters, and when it may be written.

Runs on vLLM where it is installed, else on the doubles; PyTorch's allocator is
a fake (the real one: test_gpu_drop.py).
"""

from __future__ import annotations

import contextlib
import os
import types
import unittest
import unittest.mock
from collections.abc import Iterable, Iterator
from typing import Any

import doubles

REAL = doubles.prepare()

from doubles.fake_shim import FakeShim  # noqa: E402
from fineserve_vllm import kv_abi, weights  # noqa: E402
from vllm.config.offload import OffloadConfig  # noqa: E402
from vllm.model_executor.model_loader import base_loader  # noqa: E402
from vllm.v1.executor import uniproc_executor  # noqa: E402


class Tensor:
    def __init__(
        self,
        address: int,
        *shape: int,
        strides: tuple[int, ...] = (),
        is_cuda: bool = True,
    ) -> None:
        self.shape, self._strides = shape, strides or contiguous(shape)
        self._address, self.is_cuda = address, is_cuda

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def element_size(self) -> int:
        return 2

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


class Model:
    def __init__(
        self, parameters: dict[str, Tensor], buffers: dict[str, Tensor]
    ) -> None:
        self._parameters, self._buffers = parameters, buffers

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._parameters.items())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._buffers.items())


def segment(address: int, *blocks: tuple[int, int | None]) -> dict[str, Any]:
    """Returns a segment of consecutive blocks, each (bytes, requested bytes);
    None if the block is free."""
    found = []
    at = address
    for size, asked in blocks:
        found.append({
            "address": at,
            "size": size,
            "requested_size": asked or 0,
            "state": "inactive" if asked is None else "active_allocated",
        })
        at += size
    return {"address": address, "total_size": at - address, "blocks": found}


def addresses(segments: Iterable[dict[str, Any]]) -> list[int]:
    return [one["address"] for one in segments]


class NamedTest(unittest.TestCase):
    def test_a_segment_is_named_if_all_in_it_is_constant(self) -> None:
        constant = [(0x1000, 512), (0x1200, 100), (0x2000, 512)]
        self.assertEqual(
            addresses(
                weights.named(
                    [
                        segment(0x1000, (512, 512), (512, 100), (512, None)),
                        segment(0x2000, (512, 512), (512, 4)),  # and a scale
                        segment(0x3000, (512, None)),
                    ],
                    constant,
                )
            ),
            [0x1000],
        )

    def test_a_tensor_of_which_a_part_is_a_parameter_is_not(self) -> None:
        part = segment(0x1000, (1024, 1024))
        self.assertEqual(weights.named([part], [(0x1000, 1000)]), [])
        self.assertEqual(weights.named([part], [(0x1010, 1024)]), [])
        # Two parameters that share the tensor together cover all of it.
        both = [(0x1200, 512), (0x1000, 512)]
        self.assertEqual(weights.named([part], both), [part])

    def test_what_waits_for_a_stream_is_allocated_still(self) -> None:
        waits = segment(0x1000, (512, 512), (512, 512))
        waits["blocks"][1]["state"] = "active_pending_free"
        self.assertEqual(weights.named([waits], [(0x1000, 512)]), [])

    def test_a_mapping_of_pytorchs_own_is_not(self) -> None:
        mapped = segment(0x1000, (512, 512)) | {"is_expandable": True}
        self.assertEqual(weights.named([mapped], [(0x1000, 512)]), [])

    def test_segments_have_the_order_of_names_and_not_of_addresses(self) -> None:
        found = weights.named(
            [
                segment(0x1000, (512, 512)),
                segment(0x2000, (512, 512), (512, 512)),
                segment(0x3000, (512, 512)),
            ],
            [(0x3000, 512), (0x2200, 512), (0x1000, 512), (0x2000, 512)],
        )
        self.assertEqual(addresses(found), [0x3000, 0x2000, 0x1000])

    def test_what_is_free_and_the_ends_of_blocks_are_holes(self) -> None:
        found = weights.holes(
            [segment(0x1000, (512, 500), (512, 512), (1024, None))]
        )
        self.assertEqual([*found], [(0x1000 + 500, 12), (0x1400, 1024)])


class ConstantsTest(unittest.TestCase):
    def names(self, model: Model, draft: Model | None = None) -> list[str]:
        worker = types.SimpleNamespace(get_model=lambda: model)
        if draft is not None:
            worker.get_draft_model = lambda: draft
        return [name for name, _ in weights.constants(worker)]

    def test_parameters_by_name_and_no_buffer_that_a_step_may_write(
        self,
    ) -> None:
        any_ = Tensor(0, 1)
        model = Model(
            {"b": any_, "a": any_},
            {"rope.cos_sin_cache": any_, "attn._k_scale": any_},
        )
        self.assertEqual(self.names(model), ["a", "b", "rope.cos_sin_cache"])
        self.assertEqual(
            self.names(model, Model({"a": any_}, {}))[-1], "draft.a"
        )

    def test_tensors_with_gaps_and_on_the_host_have_no_span(self) -> None:
        found = weights.spans([
            ("plain", Tensor(0x1000, 4, 8)),
            ("transposed", Tensor(0x2000, 8, 4, strides=(1, 8))),
            ("of one row", Tensor(0x3000, 1, 8, strides=(64, 1))),
            ("part of a row", Tensor(0x4000, 4, 6, strides=(8, 1))),
            ("repeated", Tensor(0x5000, 4, 8, strides=(0, 1))),
            ("on the host", Tensor(0x6000, 4, is_cuda=False)),
        ])
        self.assertEqual(
            found, [(0x1000, 64), (0x2000, 64), (0x3000, 16)]
        )


def config(**changes: Any) -> Any:
    """Returns a VllmConfig with `changes`, by the names of the settings."""
    offload = OffloadConfig()
    if "cpu_offload_gb" in changes:
        offload.uva.cpu_offload_gb = changes["cpu_offload_gb"]
    if "offload_group_size" in changes:
        offload.prefetch.offload_group_size = changes["offload_group_size"]
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(
            enable_sleep_mode=changes.get("enable_sleep_mode", False),
            enable_cumem_allocator=changes.get("enable_cumem_allocator", False),
            is_moe=changes.get("is_moe", False),
        ),
        parallel_config=types.SimpleNamespace(
            enable_eplb=changes.get("enable_eplb", False),
            data_parallel_size=changes.get("data_parallel_size", 1),
            distributed_executor_backend=changes.get("backend", "uni"),
        ),
        offload_config=offload,
    )


class FakePools:
    """The models that were loaded."""

    def __init__(self) -> None:
        self.opened = 0
        self.cleared: list[tuple[int, int]] = []
        self.found = [segment(0x1000, (512, 500), (512, None))]

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self.opened += 1
        yield

    def segments(self) -> list[dict[str, Any]]:
        return self.found if self.opened else []

    def clear(self, free: Iterable[tuple[int, int]]) -> None:
        self.cleared += free


FREEZE = ("freeze", (0x1000, 1024))


class WeightsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.shim = FakeShim()
        self.pools = FakePools()
        self.weights = weights.Weights(self.shim, self.pools)
        self.worker = types.SimpleNamespace(
            get_model=lambda: Model({"a": Tensor(0x1000, 250)}, {}),
        )

    def load(self, **changes: Any) -> None:
        with self.weights.loading(weights.why_not(config(**changes))):
            pass

    def call(self, starts: bool = False) -> None:
        with self.weights.written(self.worker, starts):
            self.shim.calls.append("called")

    def test_ranks_that_step_together_must_not_leave_one_by_one(self) -> None:
        self.load(data_parallel_size=2)
        self.load(is_moe=True)
        with unittest.mock.patch.dict(
            os.environ, {"FINESERVE_EVICT": "auto"}
        ), self.assertRaisesRegex(RuntimeError, "unset FINESERVE_EVICT"):
            self.load(data_parallel_size=2, is_moe=True)

    def test_nothing_is_named_before_the_engine_serves(self) -> None:
        self.load()
        self.call()
        self.assertEqual(self.shim.calls, ["called"])
        self.call(starts=True)
        self.assertEqual(self.shim.calls, ["called", "called", FREEZE])
        self.assertEqual(self.pools.cleared, [(0x11F4, 12), (0x1200, 512)])

    def serve(self) -> None:
        self.load()
        self.call(starts=True)
        self.shim.calls.clear()

    def test_a_write_has_to_itself_what_it_writes(self) -> None:
        self.serve()
        self.call()
        self.assertEqual(self.shim.calls, ["thaw", "called", FREEZE])

    def test_only_what_has_become_free_is_cleared_again(self) -> None:
        self.serve()
        self.pools.cleared.clear()
        self.call()
        self.assertEqual(self.pools.cleared, [])
        self.pools.found = [segment(0x1000, (512, 500), (1024, None))]
        self.call()
        self.assertEqual(self.pools.cleared, [(0x1200, 1024)])

    def test_a_write_that_fails_ends_all_the_same(self) -> None:
        self.serve()
        with self.assertRaises(MemoryError):
            with self.weights.written(self.worker, False):
                raise MemoryError
        self.assertEqual(self.shim.calls, ["thaw", FREEZE])

    def test_nothing_is_written_that_another_process_reads(self) -> None:
        self.serve()
        self.shim.failing["thaw"] = kv_abi.Error.STATE
        for _ in range(2):
            with self.assertRaises(kv_abi.KvError):
                self.call()
        self.assertEqual(self.shim.calls, ["thaw", "thaw"])
        del self.shim.failing["thaw"]
        self.call()
        self.assertEqual(self.shim.calls[2:], ["thaw", "called", FREEZE])

    def test_an_update_of_several_calls_is_one_write(self) -> None:
        self.serve()
        for active in True, True, False:
            with self.weights.written(self.worker, False):
                self.worker._weight_update_active = active
        self.assertEqual(self.shim.calls, ["thaw", FREEZE])

    def test_an_engine_that_cannot_name_them_serves(self) -> None:
        self.shim.failing["freeze"] = kv_abi.Error.DRIVER
        self.load()
        self.call(starts=True)
        self.call()
        self.assertNotIn("thaw", self.shim.calls)

    def test_parameters_that_a_step_may_write_get_no_pool(self) -> None:
        for setting, value in (
            ("backend", "mp"),
            ("enable_sleep_mode", True),
            ("enable_cumem_allocator", True),
            ("cpu_offload_gb", 1),
            ("offload_group_size", 4),
            ("enable_eplb", True),
        ):
            with self.subTest(setting):
                self.load(**{setting: value})
                self.assertEqual(self.pools.opened, 0)
        self.call(starts=True)
        self.assertEqual(self.shim.calls, ["called"])


class InstallTest(unittest.TestCase):
    """Tests the functions that vLLM's executor calls."""

    def setUp(self) -> None:
        self.shim = FakeShim()
        weights.install(self.shim, FakePools())
        self.addCleanup(weights.uninstall)
        calls = self.shim.calls
        self.executor = uniproc_executor.UniProcExecutor.__new__(
            uniproc_executor.UniProcExecutor
        )
        worker = types.SimpleNamespace(
            get_model=lambda: Model({"a": Tensor(0x1000, 250)}, {}),
            **{
                name: lambda name=name: calls.append(name)
                for name in (
                    "compile_or_warm_up_model",
                    "execute_model",
                    "add_lora",
                    "reload_weights",
                    "some_method_of_a_later_release",
                )
            },
        )
        # vLLM calls the wrapper, which passes on what it does not define.
        self.executor.driver_worker = types.SimpleNamespace(
            worker=worker, **vars(worker)
        )
        with unittest.mock.patch.object(
            weights, "why_not", lambda vllm_config: None
        ), contextlib.suppress(NotImplementedError, AttributeError):
            base_loader.BaseModelLoader.load_model(None, None, None)
        self.executor.collective_rpc("compile_or_warm_up_model")
        self.assertEqual(calls, ["compile_or_warm_up_model", FREEZE])
        calls.clear()

    def test_what_writes_no_parameter_goes_on_beside_readers(self) -> None:
        self.executor.collective_rpc("execute_model")
        self.executor.collective_rpc("add_lora")
        self.assertEqual(self.shim.calls, ["execute_model", "add_lora"])

    def test_all_else_may_write(self) -> None:
        for method in (
            "reload_weights",
            "some_method_of_a_later_release",
            lambda worker: self.shim.calls.append("function"),
        ):
            self.shim.calls.clear()
            self.executor.collective_rpc(method)
            self.assertEqual(
                [self.shim.calls[0], *self.shim.calls[2:]], ["thaw", FREEZE]
            )

    def test_uninstalled_it_leaves_vllm_alone(self) -> None:
        weights.uninstall()
        self.executor.collective_rpc("reload_weights")
        self.assertEqual(self.shim.calls, ["reload_weights"])

    @unittest.skipUnless(REAL, "needs vLLM")
    def test_the_methods_are_vllms(self) -> None:
        """If a release renames one of them, its call would end every drop."""
        from vllm.v1.worker.gpu_worker import Worker

        for name in weights._WRITE_NO_PARAMETERS - _NOT_IN_EVERY_RELEASE:
            self.assertTrue(hasattr(Worker, name), name)


# Methods that write no parameter and that some releases lack.
_NOT_IN_EVERY_RELEASE = {"synchronize_device"}
