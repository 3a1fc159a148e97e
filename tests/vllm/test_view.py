"""The plugin on the shim's C interface: bindings, formats, order of the start.

Runs on vLLM where it is installed, else on the doubles; the shim is a fake (the
real one: test_view_engine.py).
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

import doubles
from doubles import build
from doubles.fake_shim import GRANULE, FakeShim
from fineserve_vllm import (
    kv_abi,
    kv_scope,
    lease_watch,
    plugin,
    sleep,
    support,
)
from fineserve_vllm.grants import InMemoryGrants
from fineserve_vllm.pool import LeasedBlockPool
from fineserve_vllm.shim_grants import ShimGrants
from fineserve_vllm.usage_report import UsageReport
from fineserve_vllm.view import View
from fineserve_vllm.view_format import ViewFormat, view_format
from vllm.v1.core import kv_cache_coordinator
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.kv_cache_interface import KVCacheTensor
from vllm.v1.worker import worker_base

NO_SLEEP = sleep.Kv(lambda: None, lambda: False)
HEADER = doubles.PLUGIN.parent / "fineserve_kv.h"


class BindingTest(unittest.TestCase):
    """kv_abi.py matches the C header."""

    STRUCTS = {
        "fs_kv_format": kv_abi.Format,
        "fs_kv_groups": kv_abi.Groups,
        "fs_kv_geometry": kv_abi.Geometry,
        "fs_kv_stats": kv_abi.Stats,
        "fs_kv_change": kv_abi.Change,
        "fs_weights_range": kv_abi.Range,
    }
    CONSTANTS = (
        {f"FS_{error.name}": error.value for error in kv_abi.Error}
        | {f"FS_KV_{stage.name}": stage.value for stage in kv_abi.Stage}
        | {f"FS_KV_{mode.name}": mode.value for mode in kv_abi.Mode}
        | {
            "FS_KV_RANK": kv_abi.RANK,
            "FS_KV_REGISTERED": kv_abi.REGISTERED,
            "FS_KV_LEASED": kv_abi.LEASED,
            "FS_KV_ASKED_BACK": kv_abi.ASKED_BACK,
        }
    )

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_structs_and_constants_are_those_of_the_header(self) -> None:
        expected = {}
        lines = []
        for name, struct in self.STRUCTS.items():
            expected[name] = ctypes.sizeof(struct)
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            for member, kind in struct._fields_:
                field = getattr(struct, member)
                key = f"{name}.{member}"
                expected[key] = field.offset * 1000 + ctypes.sizeof(kind)
                lines.append(
                    f'printf("{key} %zu\\n", offsetof(struct {name}, {member})'
                    f" * 1000 + sizeof(((struct {name}*)0)->{member}));"
                )
        for name, value in self.CONSTANTS.items():
            expected[name] = value
            lines.append(f'printf("{name} %d\\n", {name});')
        program = (
            f'#include "{HEADER}"\n#include <stddef.h>\n#include <stdio.h>\n'
            "int main(void) {" + "\n".join(lines) + "}"
        )
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder, "layout")
            subprocess.run(
                ["cc", "-x", "c", "-", "-o", binary],
                input=program,
                text=True,
                check=True,
            )
            said = subprocess.run(
                [binary], capture_output=True, text=True, check=True
            ).stdout
        found = {
            name: int(value)
            for name, value in (line.split() for line in said.splitlines())
        }
        self.assertEqual(found, expected)

    def test_every_function_of_the_header_is_bound_or_left_out_on_purpose(
        self,
    ) -> None:
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
        declared = dict(re.findall(r"\b(fs_(?!torch)\w+)\(([^)]*)\);", text))
        bound = kv_abi._SIGNATURES | kv_abi._IN_EVERY_STEP
        unused = {  # the allocator for engines without one
            "fs_kv_step_begin",
            "fs_kv_step_end",
            "fs_kv_allocate",
            "fs_kv_free",
            "fs_kv_set_watermark",
        }
        self.assertEqual(set(declared) - unused, set(bound))
        for name, (_, arguments) in bound.items():
            given = declared[name].strip()
            count = 0 if given == "void" else given.count(",") + 1
            self.assertEqual(len(arguments), count, name)


def tensors(
    *places: tuple[int, int, int, int], size: int, first: int = 0
) -> list[Any]:
    """Returns the tensors of `places`, each (layers, layer stride, block
    stride, offset)."""
    return [
        KVCacheTensor(
            size=size,
            layers=[f"{i}.{layer}" for layer in range(layers)],
            layer_stride=layer_stride,
            block_stride=block_stride,
            offset=offset,
        )
        for i, (layers, layer_stride, block_stride, offset) in enumerate(
            places, first
        )
    ]


class Spec:
    """The spec of layers that keep all tokens, or those of a window."""

    page_size_bytes = 10

    def __init__(self, block_size: int = 16, window: int | None = None) -> None:
        self.block_size = block_size
        self._window = window

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        tokens = vllm_config.model_config.max_model_len
        kept = tokens if self._window is None else min(tokens, self._window)
        return self.page_size_bytes * -(-kept // self.block_size)


def group(spec: Spec, kv_cache_tensors: list[Any]) -> Any:
    return types.SimpleNamespace(
        kv_cache_spec=spec,
        layer_names=[name for its in kv_cache_tensors for name in its.layers],
    )


def config(num_blocks: int, *groups: list[Any]) -> Any:
    """Returns a configuration of these groups of tensors; the second group
    attends to 40 tokens."""
    windows = None, 40
    return types.SimpleNamespace(
        num_blocks=num_blocks,
        kv_cache_tensors=[tensor for its in groups for tensor in its],
        kv_cache_groups=[
            group(Spec(window=window), its)
            for window, its in zip(windows, groups)
        ],
    )


def longest(tokens: int) -> Any:
    """Returns a VllmConfig with this --max-model-len."""
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(max_model_len=tokens),
        parallel_config=types.SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
    )


PAGE = 64 << 10


class FormatTest(unittest.TestCase):
    def test_blocks_outermost_are_one_plane(self) -> None:
        found = view_format(
            config(33, tensors((4, PAGE, 4 * PAGE, 0), size=33 * 4 * PAGE)),
            longest(100),
        )
        self.assertEqual(found, ViewFormat(1, 4 * PAGE, 33, 16, 7))

    def test_layers_outermost_are_a_plane_each(self) -> None:
        plane = 64 * PAGE
        found = view_format(
            config(64, tensors((4, plane, PAGE, 0), size=4 * plane)), longest(96)
        )
        self.assertEqual(found, ViewFormat(4, PAGE, 64, 16, 6))
        self.assertEqual(found.allocation_bytes, 4 * plane)

    def test_a_single_layer_is_one_plane_either_way(self) -> None:
        found = view_format(
            config(33, tensors((1, 33 * PAGE, PAGE, 0), size=33 * PAGE)), longest(16)
        )
        self.assertEqual((found.planes, found.page_bytes), (1, PAGE))

    def test_layers_in_several_tensors_count_together(self) -> None:
        plane = 32 * PAGE
        found = view_format(
            config(
                32,
                tensors(
                    (2, plane, PAGE, 0),
                    (1, plane, PAGE, 2 * plane),
                    size=3 * plane,
                ),
            ),
            longest(16),
        )
        self.assertEqual(found.planes, 3)

    def test_groups_overlay_each_other_and_a_request_takes_blocks_of_all(
        self,
    ) -> None:
        full = tensors((2, PAGE, 2 * PAGE, 0), size=33 * 2 * PAGE)
        window = tensors((1, PAGE, 2 * PAGE, 0), size=33 * 2 * PAGE, first=1)
        found = view_format(config(33, full, window), longest(160))
        self.assertEqual(
            found, ViewFormat(1, 2 * PAGE, 33, 160 // 13, 10 + 3)
        )

    def test_groups_with_layers_outermost_share_the_planes(self) -> None:
        plane = 32 * PAGE
        full = tensors((2, plane, PAGE, 0), size=2 * plane)
        window = tensors((1, plane, PAGE, 0), size=2 * plane, first=1)
        found = view_format(config(32, full, window), longest(16))
        self.assertEqual((found.planes, found.page_bytes), (2, PAGE))

    def test_impossible_setting_is_refused_with_the_flag_to_set(self) -> None:
        plane = 33 * PAGE
        for name, message, kv_cache_tensors in (
            ("no KV cache", "unset FINESERVE_VIEW", []),
            (
                "planes that do not end on a granule",
                "--num-gpu-blocks-override 64",
                tensors((4, plane, PAGE, 0), size=4 * plane),
            ),
            (
                "heads outermost",
                "VLLM_KV_CACHE_LAYOUT=BLHNC",
                tensors((4, plane, PAGE // 8, 0), size=4 * plane),
            ),
            (
                "a gap behind the first layer",
                "VLLM_KV_CACHE_LAYOUT=BLHNC",
                tensors(
                    (1, plane, PAGE, 0),
                    (1, plane, PAGE, plane + PAGE),
                    size=2 * plane + PAGE,
                ),
            ),
            (
                "layers over each other",
                "VLLM_KV_CACHE_LAYOUT=BLHNC",
                tensors(
                    (1, plane, PAGE, 0), (1, plane, PAGE, 0), size=2 * plane
                ),
            ),
            (
                "pages of two sizes",
                "VLLM_KV_CACHE_LAYOUT=BLHNC",
                tensors(
                    (1, plane, PAGE, 0),
                    (1, plane, 2 * PAGE, plane),
                    size=3 * plane,
                ),
            ),
        ):
            with self.subTest(name), self.assertRaisesRegex(
                RuntimeError, message
            ):
                view_format(config(33, kv_cache_tensors), longest(16))

    def test_host_memory_and_several_allocations_are_refused(self) -> None:
        (tensor,) = tensors((1, 32 * PAGE, PAGE, 0), size=32 * PAGE)
        other = tensors((1, PAGE, PAGE, 0), size=PAGE)
        with self.assertRaisesRegex(RuntimeError, "not supported"):
            view_format(config(32, [tensor, *other]), longest(16))
        tensor.host_resident = True
        with self.assertRaisesRegex(RuntimeError, "host memory"):
            view_format(config(32, [tensor]), longest(16))


@unittest.skipUnless(build.REAL, "needs vLLM")
class RealLayoutTest(unittest.TestCase):
    """Compares layouts with what vLLM's own functions plan and allocate."""

    LAYERS, BLOCKS, TOKENS, HEADS, HEAD_SIZE = 4, 64, 16, 8, 64

    def plan(self, layout: str, override: int | None) -> Any:
        import torch
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheGroupSpec,
        )
        from vllm.v1.kv_cache_layout import KVCacheLayout

        spec = FullAttentionSpec(
            block_size=self.TOKENS,
            num_kv_heads=self.HEADS,
            head_size=self.HEAD_SIZE,
            dtype=torch.float16,
        )
        names = [f"layer{i}" for i in range(self.LAYERS)]
        vllm_config = mock.MagicMock()
        vllm_config.attention_config.hisparse_config = None
        cache = vllm_config.cache_config
        cache.num_gpu_blocks_override = override
        cache.prefix_cache_retention_interval = None
        cache.get_resolved_kv_cache_layout = lambda: KVCacheLayout[layout]
        # As with --kv-cache-memory-bytes, the size is a whole number of blocks
        # and some bytes.
        available = self.BLOCKS * self.LAYERS * spec.page_size_bytes + 4711
        return KVCacheLayout[layout], (
            doubles.planning().get_kv_cache_config_from_groups(
                vllm_config, [KVCacheGroupSpec(names, spec)], available
            )
        )

    def test_each_layout_is_taken_as_allocated_or_refused(self) -> None:
        import torch
        from vllm.v1.worker.utils import allocate_kv_cache

        taken = {}
        for layout in ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"):
            kind, planned = self.plan(layout, None)
            self.assertEqual(planned.num_blocks, self.BLOCKS)
            try:
                found = view_format(planned, longest(160))
            except RuntimeError as error:
                self.assertIn("VLLM_KV_CACHE_LAYOUT=BLHNC", str(error))
                taken[layout] = 0
                continue
            taken[layout] = found.planes
            for kernel_block in (None, [8]):
                if kernel_block and found.planes == 1:
                    continue  # vLLM splits no blocks that hold all layers
                caches = allocate_kv_cache(
                    planned, torch.device("cpu"), kind, kernel_block
                )
                cells = [c.view(torch.int16) for c in caches.values()]
                raw = cells[0].as_strided(
                    (found.allocation_bytes // 2,), (1,), 0
                )
                self.assertEqual(
                    raw.untyped_storage().nbytes(), found.allocation_bytes
                )
                for block in (0, 1, 17, self.BLOCKS - 1):
                    expected = torch.zeros_like(raw)
                    expected.view(found.planes, self.BLOCKS, -1)[:, block] = 1
                    raw.zero_()
                    for cell in cells:
                        pieces = cell.shape[0] // self.BLOCKS
                        cell[block * pieces : (block + 1) * pieces] = 1
                    self.assertTrue(
                        torch.equal(raw, expected),
                        (layout, kernel_block, block),
                    )
        self.assertEqual(
            taken,
            {
                "LBHNC": self.LAYERS,
                "LBNHC": self.LAYERS,
                "LHBNC": 0,
                "BLHNC": 1,
                "BLNHC": 1,
                "BHLNC": 1,
            },
        )

    def test_the_override_alone_decides_the_blocks(self) -> None:
        _, planned = self.plan("BLHNC", 1000)
        self.assertEqual(view_format(planned, longest(160)).blocks, 1000)
        with self.assertRaisesRegex(RuntimeError, "override 1024"):
            view_format(self.plan("LBNHC", 1000)[1], longest(160))


class ShimGrantsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.shim = FakeShim(slab_count=4, plane_bytes=10)
        geometry = self.shim.register(
            kv_abi.Format(planes=1, page_bytes=3, blocks=15)
        )
        geometry.slab_count = 4
        self.grants = ShimGrants(self.shim, geometry, 15)

    def test_slabs_hold_whole_blocks_within_the_pool(self) -> None:
        self.assertEqual(
            [slab.ids for slab in self.grants.slabs()],
            [range(4, 6), range(7, 10), range(10, 13), range(14, 15)],
        )

    def test_the_null_block_is_in_no_slab(self) -> None:
        self.shim.slab_blocks = lambda index: range(0, 5)
        grants = ShimGrants(self.shim, kv_abi.Geometry(slab_count=1), 15)
        self.assertEqual([s.ids for s in grants.slabs()], [range(1, 5)])

    def test_nothing_is_leased_before_activation(self) -> None:
        self.shim.lease(1)
        self.assertEqual(list(self.grants.poll().leased), [])
        self.grants.activate()
        self.assertEqual(list(self.grants.poll().leased), [1])

    def test_changes_are_known_by_kind(self) -> None:
        self.grants.activate()
        self.shim.lease(1, 3)
        self.shim.ask_back(2)
        changes = self.grants.poll()
        self.assertEqual(list(changes.leased), [1, 3])
        self.assertEqual(list(changes.asked_back), [2])
        self.grants.return_slab(2)
        self.grants.want(3)
        self.assertEqual((self.shim.returned, self.shim.wanted), ([2], 3))


    def test_a_suspension_is_not_the_end_of_waiting_for_changes(self) -> None:
        self.grants.activate()
        suspend = self.shim.suspend

        def waits_in_between() -> None:
            suspend()
            self.assertFalse(self.grants.wait_for_change(0))

        with mock.patch.object(self.shim, "suspend", waits_in_between):
            self.grants.suspend()
        self.assertFalse(self.grants.wait_for_change(0))

    def test_waiting_outlives_a_suspension_and_what_follows(self) -> None:
        for resumed in (False, True):
            with self.subTest(resumed=resumed):
                self.setUp()
                self.grants.activate()

                def wait(timeout_ms: int, resumed: bool = resumed) -> bool:
                    self.grants.suspend()
                    if resumed:
                        self.grants.resume()
                    raise kv_abi.KvError("wait", kv_abi.Error.STATE, "")

                with mock.patch.object(self.shim, "wait", wait):
                    self.assertFalse(self.grants.wait_for_change(0))
                self.assertEqual(self.grants.active, resumed)

    def test_waiting_outlives_a_view_that_goes_while_the_engine_leaves(
        self,
    ) -> None:
        self.grants.activate()
        self.grants.suspend()
        for presence in kv_abi.Presence:
            with mock.patch.object(self.shim, "presence", lambda p=presence: p):
                self.assertFalse(self.grants.wait_for_change(0))

    def test_waiting_ends_with_the_view(self) -> None:
        self.grants.activate()
        self.shim.close()
        with self.assertRaises(kv_abi.KvError):
            self.grants.wait_for_change(0)

    def test_a_refused_suspension_leaves_the_view_active(self) -> None:
        self.grants.activate()
        self.shim.failing["suspend"] = kv_abi.Error.STATE
        with self.assertRaises(kv_abi.KvError):
            self.grants.suspend()
        self.shim.lease(1)
        self.assertTrue(self.grants.wait_for_change(0))
        self.assertEqual(list(self.grants.poll().leased), [1])


class WatchTest(unittest.TestCase):
    def test_errors_do_not_end_it_and_are_said_once(self) -> None:
        class Ended(BaseException):
            pass

        def error(code: kv_abi.Error) -> kv_abi.KvError:
            return kv_abi.KvError("fs_kv_wait", code, "no view")

        grants = mock.Mock()
        grants.wait_for_change.side_effect = [
            True,
            error(kv_abi.Error.NO_DAEMON),
            error(kv_abi.Error.STATE),
            error(kv_abi.Error.DRIVER),
            True,
            error(kv_abi.Error.STATE),
            True,
            True,
            Ended,
        ]
        # An engine that its caller steps does its work here.
        wake = mock.Mock(
            side_effect=[None, None, RuntimeError("device"), None]
        )
        pause = mock.Mock()
        with (
            self.assertLogs("vllm.fineserve_vllm.lease_watch") as logs,
            self.assertRaises(Ended),
        ):
            lease_watch.watch(grants, wake, pause)
        self.assertEqual(wake.call_count, 4)
        self.assertEqual(pause.call_count, 4)
        self.assertEqual(len(logs.output), 2)


class UsageReportTest(unittest.TestCase):
    def setUp(self) -> None:
        self.grants = InMemoryGrants.uniform(4, 10, leased=[1, 2])
        self.pool = LeasedBlockPool(50, True, 16, grants=self.grants)
        self.now = 0.0
        self.report = UsageReport(self.pool, lambda: self.now)

    def step(self, after_s: float = 1.0) -> dict[int, int]:
        self.now += after_s
        self.report.step_ended()
        return self.grants.used

    def test_blocks_in_use_are_counted_by_slab(self) -> None:
        self.pool.get_new_blocks(13)
        self.assertEqual(self.step(), {1: 10, 2: 3})

    def test_a_block_that_is_only_cached_is_not_in_use(self) -> None:
        first, second = self.pool.get_new_blocks(2)
        self.pool.touch([first])
        self.pool.free_blocks([first, second])
        self.assertEqual(self.step(), {1: 1})

    def test_used_blocks_of_a_leaving_slab_count(self) -> None:
        self.pool.get_new_blocks(4)
        self.grants.ask_back(1)
        self.pool.apply(self.grants.poll())
        self.assertEqual(self.step(), {1: 4})

    def test_steps_in_quick_succession_cost_nothing(self) -> None:
        self.pool.get_new_blocks(1)
        self.step()
        self.pool.get_new_blocks(1)
        self.assertEqual(self.step(after_s=0.01), {1: 1})
        self.assertEqual(self.step(after_s=0.05), {1: 2})

    def test_an_idle_pool_is_published_at_once(self) -> None:
        blocks = self.pool.get_new_blocks(12)
        self.step()
        self.pool.free_blocks(blocks)
        self.assertEqual(self.step(after_s=0.001), {1: 0, 2: 0})

    def test_a_large_pool_is_counted_in_turns(self) -> None:
        grants = InMemoryGrants.uniform(5, 1000, leased=range(1, 6))
        pool = LeasedBlockPool(6000, True, 16, grants=grants)
        report = UsageReport(pool, lambda: self.now)
        pool.get_new_blocks(5000)
        self.now += 1
        report.step_ended()
        self.assertEqual(set(grants.used), {1, 2})
        for _ in range(2):
            self.now += 1
            report.step_ended()
        self.assertEqual(grants.used, dict.fromkeys(range(1, 6), 1000))

    def test_a_slab_returned_no_longer_counts(self) -> None:
        self.pool.get_new_blocks(12)
        self.step()
        self.report.returned(2)
        self.assertEqual(self.grants.used, {1: 10, 2: 0})


BLOCKS_PER_SLAB = GRANULE // PAGE
NUM_BLOCKS = 5 * BLOCKS_PER_SLAB


class StartTest(unittest.TestCase):
    """Starts an engine in the order in which vLLM does."""

    def setUp(self) -> None:
        self.shim = FakeShim()
        self.addCleanup(self.shim.close)
        self.addCleanup(self.reset)
        for patch in (
            mock.patch.object(kv_abi, "preloaded", lambda: True),
            mock.patch.object(kv_abi, "Shim", lambda: self.shim),
            mock.patch.dict(os.environ, {"FINESERVE_VIEW": "1"}),
            mock.patch.object(  # needs PyTorch
                kv_scope, "_fresh_segments", lambda inner: inner
            ),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def reset(self) -> None:
        plugin.uninstall()
        kv_scope.uninstall()
        plugin._registered = False
        plugin._engines.clear()  # of other tests

    def allocate(self, page: int = PAGE, backend: str = "uni") -> None:
        """Has the worker allocate as the executor does."""
        size = NUM_BLOCKS * page
        vllm_config, kv_cache_config = build.configs(NUM_BLOCKS, False)
        vllm_config.parallel_config.distributed_executor_backend = backend
        (tensor,) = tensors((1, size, page, 0), size=size)
        tensor.layers = kv_cache_config.kv_cache_groups[0].layer_names
        kv_cache_config.kv_cache_tensors = [tensor]
        if build.REAL:
            kv_cache_config.hash_block_size = build.BLOCK_TOKENS
        wrapper = object.__new__(worker_base.WorkerWrapperBase)
        wrapper.vllm_config = vllm_config
        wrapper.global_rank = 0
        wrapper.worker = Worker(self.shim)
        with doubles.no_current_config():
            wrapper.initialize_from_config([kv_cache_config])

    def test_the_engine_lives_on_the_views_leases(self) -> None:
        plugin.register()
        self.allocate()
        self.shim.lease(2)
        scheduler = build.scheduler(NUM_BLOCKS)
        self.assertEqual(
            self.shim.calls,
            [
                ("progress", "PLUGIN_LOADED"),
                ("progress", "POOL_REPLACED"),
                "register",
                "begin",
                "allocated",
                "end",
                ("progress", "POOL_CONSTRUCTED"),
                "activate",
            ],
        )
        assert self.shim.format is not None
        self.assertEqual(self.shim.format.floor_blocks, 128)  # 2048 tokens
        groups = [
            (g.count, g.block_tokens, g.window_tokens)
            for g in self.shim.format.groups
        ]
        self.assertEqual(groups, [(1, 16, 0)] + 3 * [(0, 0, 0)])
        self.assertEqual(self.shim.format.filling_tokens % 512, 0)
        self.assertEqual(
            self.shim.format.answering_tokens,
            self.shim.format.filling_tokens // 512,
        )
        pool = scheduler.kv_cache_manager.block_pool
        self.assertEqual(pool.linked, {2})
        (block,) = pool.get_new_blocks(1)
        self.assertIn(block.block_id, self.shim.slab_blocks(2))

    @unittest.skipIf(build.REAL, "vLLM's own needs an executor")
    def test_an_engine_on_several_gpus_joins_its_workers(self) -> None:
        from vllm.v1.engine import core

        plugin.register()
        config, _ = build.configs(NUM_BLOCKS, False)
        config.parallel_config.distributed_executor_backend = "mp"
        config.cache_config.num_gpu_blocks_override = 7
        executor = mock.Mock()
        executor.collective_rpc = lambda call, args=(): [
            call(None, *args),
            call(None, *args),
        ]
        self.shim.format = kv_abi.Format(page_bytes=PAGE)
        engine = core.EngineCore(config, executor)
        self.assertIsNone(engine.blocks_overridden, "it is a cap")
        self.assertEqual(config.cache_config.num_gpu_blocks_override, 7)
        self.shim.lease(2)
        scheduler = build.scheduler(
            NUM_BLOCKS,
            vllm_config__parallel_config__distributed_executor_backend="mp",
        )
        activation = [("progress", "POOL_CONSTRUCTED"), "activate"]
        self.assertEqual(
            self.shim.calls[2:],
            [activation[0]]  # in the scheduler's process, then in the workers
            + 2 * activation
            + [("join_ranks", b"rank", b"rank")]
            + 3 * [("follow", b"rank")]
            + [activation[0]],
        )
        pool = scheduler.kv_cache_manager.block_pool
        self.assertEqual(pool.linked, {2})
        self.assertIn("finish", str(pool.fence._finish))

    def test_a_worker_alone_registers_a_rank(self) -> None:
        plugin.register()
        self.allocate(backend="mp")
        assert self.shim.format is not None
        self.assertEqual(self.shim.format.flags, kv_abi.RANK)
        with self.assertRaisesRegex(RuntimeError, "not allocated in the"):
            build.scheduler(NUM_BLOCKS)

    def test_the_start_line_says_how_much_no_block_uses(self) -> None:
        plugin.register()
        for page, lost in (
            (PAGE, "0.00"),
            # A slab has the size of 3.6 blocks; the slabs hold 3, 2, 3 and 2
            # whole ones.
            (9 * PAGE, "29.69"),
        ):
            with self.assertLogs("vllm.fineserve_vllm.view", "INFO") as logs:
                self.allocate(page)
            self.assertIn(f"and {lost} % of the slabs", logs.output[0])

    def test_an_idle_engine_is_woken_when_leases_change(self) -> None:
        plugin.register()
        self.allocate()
        scheduler = build.scheduler(NUM_BLOCKS)
        plugin.leases_of(scheduler).attach(lambda: None)
        self.assertFalse(scheduler.has_requests())
        self.shim.lease(3)
        self.assertTrue(eventually(scheduler.has_requests))
        build.step(scheduler)
        self.assertEqual(scheduler.kv_cache_manager.block_pool.linked, {3})
        self.shim.ask_back(3)
        self.assertTrue(eventually(scheduler.has_requests))
        build.step(scheduler)
        self.assertEqual(self.shim.returned, [3])

    def test_an_engine_that_its_caller_steps_answers_between_steps(
        self,
    ) -> None:
        plugin.register()
        self.allocate()
        scheduler = build.scheduler(NUM_BLOCKS)
        pool = scheduler.kv_cache_manager.block_pool
        self.shim.lease(3)
        self.assertTrue(eventually(lambda: pool.linked == {3}))
        self.shim.ask_back(3)
        self.assertTrue(eventually(lambda: self.shim.returned == [3]))
        self.assertFalse(scheduler.has_requests())

    def test_an_engine_that_slept_is_woken_when_leases_change(self) -> None:
        plugin.register()
        self.allocate()
        scheduler = build.scheduler(NUM_BLOCKS)
        pool = scheduler.kv_cache_manager.block_pool
        self.shim.lease(3)
        self.assertTrue(eventually(lambda: pool.linked == {3}))
        plugin.suspend_all()
        self.assertEqual(self.shim.calls[-1], "suspend")
        self.assertEqual(pool.linked, frozenset())
        self.assertEqual(self.shim.returned, [], "the shim returns all")
        self.shim.lease(2)
        plugin.wake_all()
        self.assertEqual(pool.linked, frozenset())
        plugin.resume_all()
        self.assertEqual(pool.linked, {2})
        self.shim.lease(1)
        self.assertTrue(eventually(lambda: pool.linked == {1, 2}))

    def test_the_workers_own_sleep_takes_the_kv_cache_along(self) -> None:
        plugin.register()
        worker = mock.Mock()
        del worker.sleeping_tags  # only an executor has them
        self.init_device(worker)
        self.allocate()
        build.scheduler(NUM_BLOCKS)
        worker.sleep(2)
        self.assertEqual(self.shim.calls[-1], "suspend")
        worker.wake_up()
        self.assertEqual(self.shim.calls[-1], "resume")

    def without_a_daemon(self) -> None:
        lost = kv_abi.KvError("wait", kv_abi.Error.NO_DAEMON, "no daemon")
        patch = mock.patch.object(self.shim, "pool", side_effect=lost)
        patch.start()
        self.addCleanup(patch.stop)
        plugin.register()

    def test_an_engine_that_may_do_so_starts_without_a_daemon(self) -> None:
        self.without_a_daemon()
        with self.assertLogs("vllm.fineserve_vllm.start", "WARNING") as logs:
            self.init_device(mock.Mock())
        self.assertRegex(logs.output[0], "no daemon .*without a view")
        self.allocate()
        self.assertNotIn("register", self.shim.calls)
        pool = build.scheduler(NUM_BLOCKS).kv_cache_manager.block_pool
        self.assertEqual(type(pool).__name__, "BlockPool")

    def test_an_engine_that_needs_a_view_keeps_waiting_for_one(self) -> None:
        os.environ["FINESERVE_VIEW"] = "required"
        self.without_a_daemon()
        worker = mock.Mock()
        worker.get_kv_cache_spec.return_value = {}
        self.init_device(worker)
        with self.assertRaisesRegex(RuntimeError, "no daemon"):
            worker.determine_available_memory()

    def init_device(self, worker: Any) -> None:
        wrapper = object.__new__(worker_base.WorkerWrapperBase)
        wrapper.worker = worker
        wrapper.vllm_config, _ = build.configs(NUM_BLOCKS, False)
        vars(wrapper.vllm_config.cache_config).update(
            gpu_memory_utilization=0.9,
            kv_cache_memory_bytes=None,
            num_gpu_blocks_override=None,
        )
        with doubles.no_current_config():
            wrapper.init_device()

    def test_a_daemon_that_was_lost_for_a_while_is_heard_again(self) -> None:
        plugin.register()
        self.allocate()
        scheduler = build.scheduler(NUM_BLOCKS)
        pool = scheduler.kv_cache_manager.block_pool
        self.shim.lose_daemon()
        self.assertTrue(eventually(lambda: self.shim.losses > 1))
        self.shim.find_daemon()
        self.shim.lease(3)
        self.assertTrue(eventually(lambda: pool.linked == {3}))

    def test_registering_again_changes_nothing(self) -> None:
        plugin.register()
        plugin.register()
        self.assertEqual(len(self.shim.calls), 2)

    def test_an_engine_that_cannot_be_activated_does_not_start(self) -> None:
        for function in "register", "activate":
            with self.subTest(function):
                self.reset()
                plugin.register()
                self.shim.failing = {function: kv_abi.Error.REFUSED}
                with self.assertRaisesRegex(
                    kv_abi.KvError, f"as the test set it \\({function}"
                ):
                    self.allocate()
                    build.scheduler(NUM_BLOCKS)

    def test_a_forked_engine_learns_how_to_spawn(self) -> None:
        plugin.register()
        self.shim.failing = {"register": kv_abi.Error.FORKED}
        with self.assertRaisesRegex(
            kv_abi.KvError, "VLLM_WORKER_MULTIPROC_METHOD=spawn"
        ):
            self.allocate()

    def test_kv_of_another_process_is_refused(self) -> None:
        plugin.register()
        with self.assertRaisesRegex(RuntimeError, "executor-backend uni"):
            build.scheduler(NUM_BLOCKS)

    def test_a_second_pool_on_one_view_is_refused(self) -> None:
        plugin.register()
        self.allocate()
        build.scheduler(NUM_BLOCKS)
        with self.assertRaisesRegex(RuntimeError, "one engine per process"):
            build.scheduler(NUM_BLOCKS)

    def test_a_pool_of_another_size_is_refused(self) -> None:
        plugin.register()
        self.allocate()
        with self.assertRaisesRegex(RuntimeError, "one engine per process"):
            build.scheduler(NUM_BLOCKS - 1)

    def test_constructed_without_a_pool_is_refused(self) -> None:
        view = View(self.shim, lambda: None, NO_SLEEP, lambda: None)
        with self.assertRaisesRegex(RuntimeError, "no leases"):
            view.constructed()

    def test_a_renamed_pool_stops_at_loaded(self) -> None:
        del kv_cache_coordinator.BlockPool
        self.addCleanup(setattr, kv_cache_coordinator, "BlockPool", BlockPool)
        with self.assertRaisesRegex(RuntimeError, "defines no BlockPool"):
            plugin.register()
        self.assertEqual(self.shim.calls, [("progress", "PLUGIN_LOADED")])

    def test_a_worker_without_the_seam_stops_at_loaded(self) -> None:
        cls = worker_base.WorkerWrapperBase
        original = cls.initialize_from_config
        del cls.initialize_from_config
        self.addCleanup(setattr, cls, "initialize_from_config", original)
        with self.assertRaisesRegex(RuntimeError, "initialize_from_config"):
            plugin.register()
        self.assertEqual(self.shim.calls, [("progress", "PLUGIN_LOADED")])
        self.assertIs(kv_cache_coordinator.BlockPool, BlockPool)

    def test_without_a_view_only_the_scope_is_marked(self) -> None:
        os.environ["FINESERVE_VIEW"] = "0"
        plugin.register()
        self.allocate()
        self.assertEqual(self.shim.calls, ["begin", "allocated", "end"])
        self.assertIs(kv_cache_coordinator.BlockPool, BlockPool)

    def test_without_a_view_an_unknown_vllm_runs_as_it_is(self) -> None:
        os.environ["FINESERVE_VIEW"] = ""
        cls = worker_base.WorkerWrapperBase
        original = cls.initialize_from_config
        del cls.initialize_from_config
        self.addCleanup(setattr, cls, "initialize_from_config", original)
        with self.assertLogs("vllm.fineserve_vllm.plugin", "WARNING"):
            plugin.register()

    def test_allocators_that_map_by_themselves_are_refused(self) -> None:
        support.refuse_allocator()
        with (
            mock.patch.dict(
                os.environ,
                {"PYTORCH_CUDA_ALLOC_CONF": "a:1,expandable_segments:True"},
            ),
            self.assertRaisesRegex(RuntimeError, "PYTORCH_CUDA_ALLOC_CONF"),
        ):
            support.refuse_allocator()


class Worker:
    """A worker that allocates its KV cache in vLLM's context for it."""

    def __init__(self, shim: FakeShim) -> None:
        self.shim = shim

    def _maybe_get_memory_pool_context(self, tag: str) -> Any:
        assert tag == "kv_cache"
        return mock.MagicMock()

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        with self._maybe_get_memory_pool_context("kv_cache"):
            self.shim.calls.append("allocated")


def eventually(condition: Any, seconds: float = 120) -> bool:
    import time

    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
