"""Settings of an engine on a view, and those of them that the user decides."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

import doubles

REAL = doubles.prepare()

from doubles.fake_shim import GRANULE, FakeShim  # noqa: E402
from fineserve_vllm import kv_groups, start  # noqa: E402
from fineserve_vllm.start import Cap, Start, in_our_order  # noqa: E402
from fineserve_vllm.view_format import ViewFormat, view_format  # noqa: E402
from vllm.v1.worker import worker_base  # noqa: E402

MIB = 1 << 20
DEVICE = 1000 * MIB
LONGEST = 16  # blocks of a request
# vLLM's order of layouts if no attention backend sets one.
LAYOUTS = ["LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"]


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """Like vLLM's spec of a layer that keeps all tokens or those of a
    window."""

    page_size_bytes: int
    window: int | None
    block_size: int = 16

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        tokens = self.window or vllm_config.model_config.max_model_len
        return -(-tokens // self.block_size) * self.page_size_bytes


def layer_spec(page: int, window: int | None = None) -> Any:
    if not REAL:
        return LayerSpec(page, window)
    import torch
    from vllm.v1 import kv_cache_interface as kv

    size: dict[str, Any] = {
        "block_size": 16,
        "num_kv_heads": 1,
        "head_size": page // 32,
        "dtype": torch.int8,
    }
    if window is None:
        return kv.FullAttentionSpec(**size)
    return kv.SlidingWindowSpec(**size, sliding_window=window)


class Worker:
    """A worker with the methods that vLLM calls at a start, and the answers
    that it gives without the plugin."""

    def __init__(self, layers: int, windows: int, page: int) -> None:
        self.layers, self.windows, self.page = layers, windows, page
        self.profiled_with: Any = None
        self.cache_config: Any = None
        self.model_config: Any = None

    def init_device(self) -> None:
        self.share_at_start = self.cache_config.gpu_memory_utilization

    def get_supported_kv_cache_layouts(self) -> list[str]:
        return LAYOUTS

    def get_kv_cache_spec(self) -> dict[str, Any]:
        return {
            f"{kind}.{layer}": layer_spec(self.page, window)
            for kind, count, window in (
                ("all", self.layers, None),
                ("window", self.windows, 40),
            )
            for layer in range(count)
        }

    def determine_available_memory(self) -> int:
        self.profiled_with = self.cache_config.kv_cache_memory_bytes
        return 7

    def update_max_model_len(self, max_model_len: int) -> None:
        self.model_config.max_model_len = max_model_len


# Most tests have pools too small for a separate segment.
@mock.patch.object(start, "_OWN_SEGMENT", 0)
class StartTest(unittest.TestCase):
    def test_a_pool_too_small_for_an_allocation_of_its_own_is_refused(
        self,
    ) -> None:
        with mock.patch.object(start, "_OWN_SEGMENT", 10 * MIB):
            self.start(slabs=4, page=16 << 10)
            with self.assertRaisesRegex(
                RuntimeError, "less than 10 MiB .* 6 MiB: .*--pool 10MiB"
            ):
                self.start(slabs=3, page=16 << 10)

    def start(
        self,
        slabs: int = 16,
        slab_bytes: int = GRANULE,
        layers: int = 4,
        windows: int = 0,
        page: int = 32 << 10,
        asked_length: int = 256,
        backend: str = "uni",
        **user: Any,
    ) -> int:
        """Starts a worker as WorkerWrapperBase and EngineCore do; returns
        the bytes of KV cache that vLLM is to allocate."""
        self.shim = FakeShim(slabs, slab_bytes=slab_bytes)
        self.found = Start(self.shim, lambda: (DEVICE, 100 * MIB))
        self.addCleanup(self.found.install())
        self.cache = types.SimpleNamespace(
            gpu_memory_utilization=0.92,
            kv_cache_memory_bytes=None,
            num_gpu_blocks_override=None,
            kv_cache_layout=None,
            get_resolved_kv_cache_layout=self.resolved_layout,
            prefix_cache_retention_interval=None,
        )
        layout = user.pop("layout", None)
        vars(self.cache).update(user)
        self.worker = Worker(layers, windows, page)
        self.worker.cache_config = self.cache
        wrapper = object.__new__(worker_base.WorkerWrapperBase)
        self.vllm_config = wrapper.vllm_config = types.SimpleNamespace(
            cache_config=self.cache,
            kv_transfer_config=None,
            model_config=types.SimpleNamespace(
                max_model_len=256,
                original_max_model_len=asked_length,
                supports_kv_cache_grouping=False,
            ),
            scheduler_config=types.SimpleNamespace(
                disable_hybrid_kv_cache_manager=False
            ),
            parallel_config=types.SimpleNamespace(
                decode_context_parallel_size=1,
                distributed_executor_backend=backend,
            ),
            attention_config=types.SimpleNamespace(hisparse_config=None),
            speculative_config=None,
            num_prefill_lookahead_tokens=0,
            max_in_flight_tokens=64,
        )
        self.worker.model_config = self.vllm_config.model_config
        wrapper.worker = self.worker
        wrapper._worker_extension_cls = None
        with doubles.no_current_config():
            wrapper.init_device()
        layouts = self.worker.get_supported_kv_cache_layouts()
        self.cache.kv_cache_layout = layout or layouts[0]
        return self.worker.determine_available_memory()

    def resolved_layout(self) -> Any:
        from vllm.v1.kv_cache_layout import KVCacheLayout

        return KVCacheLayout[self.cache.kv_cache_layout]

    def cap(self, blocks: int, floor: int = 1, planes: int = 1) -> Any:
        """Returns the cap of a view whose blocks have 128 KiB."""
        page = (128 << 10) // planes
        return self.found.cap(
            self.cache, ViewFormat(planes, page, blocks, 16, floor)
        )

    def test_vllm_does_not_look_at_free_memory(self) -> None:
        self.start()
        self.assertLess(self.worker.share_at_start * DEVICE, 4096)
        self.assertEqual(self.cache.gpu_memory_utilization, 0.92)

    def test_the_check_is_back_when_the_device_cannot_be_initialised(
        self,
    ) -> None:
        def fails(worker: Worker) -> None:
            raise OSError

        original, Worker.init_device = Worker.init_device, fails
        self.addCleanup(setattr, Worker, "init_device", original)
        with self.assertRaises(OSError):
            self.start()
        self.assertEqual(self.cache.gpu_memory_utilization, 0.92)

    def test_the_view_covers_the_pool_and_the_scratch_before_it(self) -> None:
        size = self.start(slabs=16, slab_bytes=8 * MIB)
        self.assertEqual(self.cache.kv_cache_layout, "BLNHC")
        self.assertEqual(size, 17 * 8 * MIB)
        # If the size is given, vLLM profiles only for its warm-up.
        self.assertEqual(self.worker.profiled_with, size)

    def test_a_plane_per_layer_has_the_pools_share_in_whole_granules(
        self,
    ) -> None:
        size = self.start(
            slabs=3, slab_bytes=5 * GRANULE, layers=2, layout="LBNHC"
        )
        self.assertEqual(size, 2 * 4 * 2 * GRANULE)  # a granule is lost

    def test_groups_of_layers_share_their_planes(self) -> None:
        """Two of eight layers keep all tokens, so vLLM makes groups of two
        layers."""
        size = self.start(
            slabs=3, slab_bytes=5 * GRANULE, layers=2, windows=6,
            layout="LBNHC",
        )
        self.assertEqual(size, 2 * 4 * 2 * GRANULE)
        if REAL:
            self.check_what_vllm_allocates(size)

    def check_what_vllm_allocates(self, size: int) -> None:
        planned = doubles.planning().get_kv_cache_config_from_groups(
            self.vllm_config,
            kv_groups.planned(
                self.vllm_config, self.worker.get_kv_cache_spec()
            ),
            size,
        )
        found = view_format(planned, self.vllm_config)
        self.assertEqual((found.planes, found.allocation_bytes), (2, size))

    def test_a_request_takes_blocks_of_each_group(self) -> None:
        """Blocks have the pages of two layers. The layers that keep all tokens
        take 16 blocks. Each of three other groups takes the blocks of 40
        tokens: 8 by vLLM's own count, which includes what steps in flight have
        not freed."""
        needed = (16 + 3 * (8 if REAL else 3)) * 2 * (64 << 10)
        slabs = -(-needed // GRANULE)
        self.start(slabs=slabs, layers=2, windows=6, page=64 << 10)
        with self.assertRaisesRegex(
            RuntimeError, f"takes {-(-needed // MIB)} MiB"
        ):
            self.start(slabs=slabs - 1, layers=2, windows=6, page=64 << 10)

    def test_a_vllm_that_groups_otherwise_is_refused(self) -> None:
        with (
            mock.patch.object(kv_groups, "_defined", lambda module, name: None),
            self.assertRaisesRegex(RuntimeError, "nor get_kv_cache_groups"),
        ):
            Start(FakeShim()).install()

    def test_planes_of_odd_pages_end_on_a_granule(self) -> None:
        page = 33_792  # 2 MiB = 62.06 pages
        size = self.start(
            slabs=3, slab_bytes=GRANULE, layers=1, page=page, layout="LBNHC"
        )
        self.assertEqual(size % (page * GRANULE // 1024), 0)
        self.assertGreaterEqual(size, 4 * GRANULE)

    def test_a_pool_too_small_for_the_longest_request_is_refused(self) -> None:
        self.start(slabs=2, page=64 << 10)  # 4 MiB: exactly the request's
        with self.assertRaisesRegex(
            RuntimeError, r"\(--max-model-len 256\) takes 5 MiB .* has 4 MiB"
        ):
            self.start(slabs=2, page=65 << 10)

    def chosen(self, **started: Any) -> int:
        """Starts a worker and returns the length of a request that vLLM
        chooses."""
        self.doCleanups()  # of the start before
        size = self.start(asked_length=-1, **started)
        self.assertEqual(size, self.cache.kv_cache_memory_bytes)
        length: int = self.vllm_config.model_config.max_model_len
        return length

    def test_a_length_that_fits_stays_as_the_model_has_it(self) -> None:
        self.assertEqual(self.chosen(slabs=2, page=64 << 10), 256)

    def test_a_length_that_vllm_chooses_is_what_whole_blocks_hold(self) -> None:
        # Blocks have 260 KiB: 6 are whole in a slab wherever it begins, though
        # 7.9 would fit by bytes.
        self.assertEqual(self.chosen(slabs=2, page=65 << 10), 2 * 6 * 16)
        self.assertEqual(
            self.chosen(
                slabs=2,
                slab_bytes=4 * GRANULE,
                page=GRANULE // 4 + 32,
                layout="LBNHC",
            ),
            2 * 2 * 16,
        )

    def test_a_length_that_vllm_chooses_fits_under_the_cap(self) -> None:
        for asked in (
            {"num_gpu_blocks_override": 10},
            {"kv_cache_memory_bytes": 10 * (128 << 10)},
            {"gpu_memory_utilization": 0.10125},  # 1.25 MiB beside the rest
        ):
            with self.subTest(asked):
                self.assertEqual(self.chosen(**asked), 10 * 16)
                self.cap(blocks=272, floor=10)

    def test_a_length_is_chosen_by_what_all_groups_take(self) -> None:
        # Each of three windows of 40 tokens takes 8 blocks, or 3 with the
        # doubles, as above.
        fixed = 3 * (8 if REAL else 3)
        length = self.chosen(
            layers=2, windows=6, num_gpu_blocks_override=fixed + 10
        )
        self.assertEqual(length, 10 * 16)

    def test_a_choice_that_cannot_be_made_is_refused(self) -> None:
        with self.assertRaisesRegex(
            RuntimeError, "room for 0 blocks .*: raise it"
        ):
            self.chosen(gpu_memory_utilization=0.05)
        with self.assertRaisesRegex(RuntimeError, "set --max-model-len 160"):
            self.chosen(num_gpu_blocks_override=10, backend="mp")

    def test_slabs_too_small_for_a_plane_per_layer_are_refused(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "--slab 8MiB --planes 4"):
            self.start(slab_bytes=3 * GRANULE, layers=4, layout="LBHNC")

    def test_the_device_limits_nothing_that_the_user_has_not_limited(
        self,
    ) -> None:
        self.start()
        self.assertIsNone(self.cap(blocks=17 * 16))

    def test_memory_utilization_is_the_cap_beside_what_the_engine_needs(
        self,
    ) -> None:
        self.start(gpu_memory_utilization=0.15)
        # The cap is 150 MiB of the device less 100 MiB of weights and
        # activations.
        self.assertEqual(
            self.cap(blocks=1000), Cap(400, "--gpu-memory-utilization 0.15")
        )
        self.assertEqual(self.cap(blocks=1000, planes=4).blocks, 400)

    def test_a_size_that_the_user_has_set_is_the_cap(self) -> None:
        size = self.start(kv_cache_memory_bytes=10 * MIB)
        self.assertEqual(size, 17 * GRANULE)
        self.assertEqual(
            self.cap(blocks=272), Cap(80, f"--kv-cache-memory-bytes {10 * MIB}")
        )

    def test_a_number_of_blocks_that_the_user_has_set_is_the_cap(self) -> None:
        self.start(num_gpu_blocks_override=20, kv_cache_memory_bytes=MIB)
        self.assertIsNone(self.cache.num_gpu_blocks_override)
        self.assertEqual(
            self.cap(blocks=272), Cap(20, "--num-gpu-blocks-override 20")
        )

    def test_a_cap_below_the_longest_request_is_refused(self) -> None:
        self.start(num_gpu_blocks_override=20)
        self.assertEqual(self.cap(blocks=272, floor=20).blocks, 20)
        with self.assertRaisesRegex(
            RuntimeError,
            "--num-gpu-blocks-override 20 leaves room for 20 blocks of KV "
            "cache, but the longest request takes 21: .*--max-model-len",
        ):
            self.cap(blocks=272, floor=21)

    def test_no_memory_beside_the_weights_is_no_negative_cap(self) -> None:
        self.start(gpu_memory_utilization=0.05)
        with self.assertRaisesRegex(RuntimeError, "room for 0 blocks"):
            self.cap(blocks=272)

    def test_a_worker_without_the_seam_is_refused(self) -> None:
        cls = worker_base.WorkerWrapperBase
        original = cls.init_device
        del cls.init_device
        self.addCleanup(setattr, cls, "init_device", original)
        with self.assertRaisesRegex(RuntimeError, "defines no init_device"):
            Start(FakeShim()).install()


class LayoutTest(unittest.TestCase):
    def test_whole_blocks_first_in_the_order_of_the_backend_within(
        self,
    ) -> None:
        self.assertEqual(in_our_order(LAYOUTS)[:2], ["BLNHC", "BLHNC"])
        flash_infer = ["LBHNC", "LBNHC", "BLHNC", "BLNHC"]
        self.assertEqual(in_our_order(flash_infer)[:2], ["BLHNC", "BLNHC"])

    def test_a_backend_with_planes_only_keeps_its_order(self) -> None:
        self.assertEqual(in_our_order(["LBHNC", "LBNHC"]), ["LBHNC", "LBNHC"])

    def test_nothing_is_added_or_lost(self) -> None:
        self.assertEqual(sorted(in_our_order(LAYOUTS)), sorted(LAYOUTS))
        self.assertEqual(start.in_our_order(["BHLNC"]), ["BHLNC"])

    def test_a_connector_is_offered_blocks_in_one_piece_alone(self) -> None:
        self.assertEqual(
            start.offered(LAYOUTS, connector=True), ["BLNHC", "BLHNC"]
        )
        self.assertEqual(
            sorted(start.offered(LAYOUTS, connector=False)), sorted(LAYOUTS)
        )
        self.assertEqual(start.offered(["LBNHC"], connector=True), ["LBNHC"])
        with mock.patch.dict("os.environ", {"VLLM_KV_CACHE_LAYOUT": "LBNHC"}):
            self.assertEqual(
                start.offered(LAYOUTS, connector=True), in_our_order(LAYOUTS)
            )


# A start that fails as in vLLM's EngineCore and front end. Arguments: how
# processes are started, and why EngineCore fails.
FAILED_START = """
import logging, multiprocessing, sys

def run_engine_core(why):
    from fineserve_vllm import last_words
    if multiprocessing.get_start_method() != "fork":
        last_words.install()
    try:
        raise RuntimeError(why)
    except RuntimeError:
        logger = logging.getLogger("vllm.v1.engine.core")
        logger.exception("EngineCore failed to start.")

if __name__ == "__main__":
    from fineserve_vllm import last_words
    multiprocessing.set_start_method(sys.argv[1])
    last_words.install()
    core = multiprocessing.Process(target=run_engine_core, args=sys.argv[2:])
    core.start()
    core.join()
    raise RuntimeError("Engine core initialization failed. See root cause above.")
"""


class LastWordsTest(unittest.TestCase):
    def last_line(self, method: str, why: str) -> str:
        # The program must be a file, because a spawned process reads it again.
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(FAILED_START)
            program.flush()
            done = subprocess.run(
                [sys.executable, program.name, method, why],
                capture_output=True,
                text=True,
                timeout=60,
            )
        self.assertEqual(done.returncode, 1)
        return done.stderr.splitlines()[-1]

    def test_a_refusal_of_engine_core_is_the_front_ends_last_line(self) -> None:
        for method in "spawn", "fork":
            with self.subTest(method):
                why = "FineServe: the pool has 8 MiB: set --pool 16MiB"
                self.assertEqual(self.last_line(method, why), why)

    def test_another_reason_leaves_vllms_last_line(self) -> None:
        self.assertRegex(
            self.last_line("spawn", "CUDA out of memory"),
            "^RuntimeError: Engine core initialization failed",
        )
