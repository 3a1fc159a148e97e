"""A view refuses KV that it cannot hold, in one line and before the KV is
allocated (label sglang)."""

from __future__ import annotations

import types
import unittest
from typing import Any
from unittest import mock

from fineserve_sglang import support, view
from fineserve_sglang.view import Format
from fineserve_vllm import kv_abi
from sglang.srt.model_executor.pool_configurator import MemoryPoolConfigurator
from sglang.srt.server_args import ServerArgs
from sglang_machine import EngineEnded, SglangMachine, WideModel


def arguments(**changed: Any) -> Any:
    """Returns SGLang's default arguments with the `changed` ones."""
    fields = ServerArgs.__struct_fields__
    defaults = ServerArgs(model_path="none")
    return types.SimpleNamespace(
        **{name: getattr(defaults, name) for name in fields} | changed
    )


class Refusals(unittest.TestCase):
    def test_usual_flags_are_not_refused(self) -> None:
        support.refuse(arguments())

    def test_each_names_its_flag(self) -> None:
        for name, flag in support._REFUSED.items():
            with self.subTest(flag):
                with self.assertRaisesRegex(RuntimeError, f"{flag} is not"):
                    support.refuse(arguments(**{name: True}))
        for name, flag in support._SIZES.items():
            with self.subTest(flag):
                with self.assertRaisesRegex(RuntimeError, f"set {flag} 1 "):
                    support.refuse(arguments(**{name: 2}))
        support.refuse(arguments(pp_size=2))
        for name, flag in (
            ("speculative_algorithm", "--speculative-algorithm"),
            ("enable_hierarchical_cache", "--enable-hierarchical-cache"),
            ("enable_dynamic_chunking", "--enable-dynamic-chunking"),
            ("scheduler_recv_interval", "--scheduler-recv-interval"),
            ("enable_lora_overlap_loading", "--enable-lora-overlap-loading"),
        ):
            value = {"speculative_algorithm": "EAGLE"}.get(name, 2)
            with self.assertRaisesRegex(RuntimeError, f"and {flag} are not"):
                support.refuse(arguments(pp_size=2, **{name: value}))
        support.refuse(arguments(tp_size=2))
        for name, flag in (
            ("enable_lora_overlap_loading", "--enable-lora-overlap-loading"),
            ("enable_memory_saver", "--enable-memory-saver"),
        ):
            support.refuse(arguments(**{name: True}))
            with self.assertRaisesRegex(RuntimeError, f"--tensor.* and {flag}"):
                support.refuse(arguments(tp_size=2, **{name: True}))
        with self.assertRaisesRegex(RuntimeError, "--disaggregation-mode null"):
            support.refuse(arguments(disaggregation_mode="decode"))

    def test_only_chains_and_trees_of_a_drafter_are_judged(self) -> None:
        for algorithm in "EAGLE", "EAGLE3", "STANDALONE":
            support.refuse(arguments(speculative_algorithm=algorithm))
        with self.assertRaisesRegex(RuntimeError, "--spec.*NGRAM.*set EAGLE"):
            support.refuse(arguments(speculative_algorithm="NGRAM"))
        with self.assertRaisesRegex(RuntimeError, "--enable-hierarchical"):
            support.refuse(
                arguments(
                    speculative_algorithm="EAGLE",
                    enable_hierarchical_cache=True,
                )
            )

    def test_flags_are_sglangs(self) -> None:
        for flag in [*support._REFUSED.values(), *support._SIZES.values()]:
            name = flag.removeprefix("--").replace("-", "_")
            self.assertIn(
                {
                    "attention_data_parallel_size": "attn_dp_size",
                    "attention_context_parallel_size": "attn_cp_size",
                    "decode_context_parallel_size": "dcp_size",
                    "moe_data_parallel_size": "moe_dp_size",
                    "expert_parallel_size": "ep_size",
                }.get(name, name),
                ServerArgs.__struct_fields__,
            )


class Models(unittest.TestCase):
    def refuse(self, mla: bool = False, **changed: Any) -> None:
        model = {
            "hf_config": types.SimpleNamespace(
                architectures=["DeepseekV3ForCausalLM"], index_topk=None
            ),
            "head_dim": 64,
            "v_head_dim": 64,
        }
        support.refuse_model(
            types.SimpleNamespace(
                use_mla_backend=mla,
                is_hybrid_swa=changed.pop("is_hybrid_swa", False),
                layer_info=types.SimpleNamespace(
                    full_attention_layer_ids=changed.pop("others", [1])
                ),
                server_args=arguments(**changed.pop("flags", {})),
                mambaish_config=changed.pop("mambaish_config", None),
                model_config=types.SimpleNamespace(**model | changed),
            )
        )

    def test_dense_models_and_latents_are_not_refused(self) -> None:
        self.refuse()
        # A latent's values are the first part of its keys.
        self.refuse(mla=True, head_dim=576, v_head_dim=512)

    def test_windows_in_a_pool_of_their_own_need_a_version(self) -> None:
        with self.version(0, 5, 23):
            self.refuse(is_hybrid_swa=True)
        with self.version(0, 5, 22), self.assertRaisesRegex(
            RuntimeError, r"needs SGLang 0.5.23.*--disable-hybrid-swa-memory"
        ):
            self.refuse(is_hybrid_swa=True)

    def version(self, *numbers: int) -> Any:
        return mock.patch.object(support, "sglang_version", lambda: numbers)

    def test_what_does_not_go_with_such_windows_names_the_flag(self) -> None:
        for what, changed in (
            (
                "--speculative-algorithm",
                {"flags": {"speculative_algorithm": "EAGLE"}},
            ),
            (
                "--enable-hierarchical-cache",
                {"flags": {"enable_hierarchical_cache": True}},
            ),
            ("--tensor-parallel-size", {"flags": {"tp_size": 2}}),
            ("latents", {"mla": True}),
            ("a model without other layers", {"others": []}),
        ):
            with self.subTest(what):
                with self.assertRaisesRegex(
                    RuntimeError,
                    f"with {what}.*set --disable-hybrid-swa-memory",
                ):
                    self.refuse(is_hybrid_swa=True, **changed)

    def states(self, *attention: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(full_attention_layer_ids=attention)

    def test_states_beside_attention_are_not_refused(self) -> None:
        self.refuse(mambaish_config=self.states(1, 3))

    def test_what_does_not_go_with_states_names_the_cure(self) -> None:
        for what, cure, changed in (
            (
                "--speculative-algorithm",
                "remove it",
                {"flags": {"speculative_algorithm": "EAGLE"}},
            ),
            (
                "--enable-hierarchical-cache",
                "remove it",
                {"flags": {"enable_hierarchical_cache": True}},
            ),
            ("--tensor-parallel-size", "set 1", {"flags": {"tp_size": 2}}),
            ("latents", "FINESERVE_VIEW", {"mla": True}),
            ("a pool of its own", "FINESERVE_VIEW", {"is_hybrid_swa": True}),
        ):
            with self.subTest(what):
                with self.assertRaisesRegex(
                    RuntimeError, f"state-space layers with {what}.*{cure}"
                ):
                    self.refuse(mambaish_config=self.states(1), **changed)
        with self.assertRaisesRegex(RuntimeError, "with no attention"):
            self.refuse(mambaish_config=self.states())

    def test_other_tensors_are_refused(self) -> None:
        indexed = types.SimpleNamespace(
            architectures=["DeepseekV3ForCausalLM"], index_topk=64
        )
        sparse = types.SimpleNamespace(
            architectures=["MiniMaxM3SparseForCausalLM"]
        )
        for what, changed in (
            ("an indexer's keys", {"mla": True, "hf_config": indexed}),
            ("an indexer's keys", {"hf_config": sparse}),
            ("values that are not as wide", {"v_head_dim": 32}),
        ):
            with self.subTest(what):
                with self.assertRaisesRegex(RuntimeError, what):
                    self.refuse(**changed)
        with (
            mock.patch(
                "sglang.srt.layers.attention.qsa.config.is_qwen_qsa",
                return_value=True,
            ),
            self.assertRaisesRegex(RuntimeError, "an indexer's keys"),
        ):
            self.refuse(mambaish_config=self.states(1))


class Sizes(unittest.TestCase):
    POOL = kv_abi.Pool(
        slab_count=14, slab_bytes=8 << 20, granule_bytes=2 << 20
    )

    def test_a_plane_ends_on_a_granule(self) -> None:
        for layers, token_bytes, page, planes in (
            (2, 4096, 1, 2),
            (2, 3072, 16, 2),
            (1, 4608, 8, 2),
            (4, 2304, 1, 1),
            (2, 576, 64, 1),
        ):
            found = Format(layers, token_bytes, page, 512, planes)
            with self.subTest(found):
                size = found.pages(self.POOL) * found.page_bytes
                granules = 4 // found.planes
                self.assertEqual(size % (2 << 20), 0)
                self.assertGreaterEqual(size, 15 * granules * (2 << 20))

    def test_too_many_layers_for_a_slab_name_the_slab_that_fits(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "--slab 16MiB --planes 8"):
            Format(4, 4096, 1, 512).pages(self.POOL)


class WindowSizes(unittest.TestCase):
    """A pool of windows of 40 tokens, each of 1024 bytes, with pages of 16
    tokens. SGLang frees what is behind the windows 128 tokens at a time."""

    FOR_A_REQUEST = 40 + 128 + 2 * 16

    def tokens(self, asked: int, free: int = 1 << 40, **schedule: Any) -> int:
        its_view = view.View(mock.Mock())
        its_view._format = Format(2, 4096, 16, 512)
        sizes = types.SimpleNamespace(
            _sliding_window_size=40,
            _page_size=16,
            _swa_cell_bytes=lambda: 1024,
            validate_swa_pool_size=(
                MemoryPoolConfigurator.validate_swa_pool_size
            ),
        )
        usual = {
            "_swa_full_tokens_ratio_explicitly_set": False,
            "max_running_requests": 32,
            "chunked_prefill_size": 256,
        }
        with (
            mock.patch(
                "sglang.srt.runtime_context.get_schedule",
                return_value=types.SimpleNamespace(**usual | schedule),
            ),
            mock.patch("torch.cuda.mem_get_info", return_value=(free, free)),
        ):
            return its_view.window_tokens(sizes, asked)

    def test_it_grows_with_requests_and_not_with_the_view(self) -> None:
        size = 32 * self.FOR_A_REQUEST + 2 * 256 + 16
        self.assertEqual(self.tokens(1 << 20), size)
        self.assertEqual(self.tokens(1 << 30), size)
        self.assertEqual(
            self.tokens(1 << 30, max_running_requests=None),
            256 * self.FOR_A_REQUEST + 2 * 256 + 16,
        )
        # A prompt that is not chunked initially has windows for all its tokens.
        self.assertEqual(
            self.tokens(1 << 30, chunked_prefill_size=-1),
            32 * self.FOR_A_REQUEST + 512 + 16,
        )

    def test_a_smaller_share_and_the_user_s_own_hold(self) -> None:
        self.assertEqual(self.tokens(1000), 992)
        self.assertEqual(
            self.tokens(1 << 20, _swa_full_tokens_ratio_explicitly_set=True),
            1 << 20,
        )

    def test_half_of_what_is_free_stays(self) -> None:
        self.assertEqual(self.tokens(1 << 20, free=2 << 20), 1024)
        with self.assertRaisesRegex(ValueError, "--swa-full-tokens-ratio"):
            self.tokens(1 << 20, free=64 << 10)


class StateSizes(unittest.TestCase):
    """States of 1 MiB, three for each request that runs."""

    def size(self, free: int = 1 << 40, **schedule: Any) -> Any:
        usual = {"max_running_requests": 32, "max_mamba_cache_size": None}
        chosen = types.SimpleNamespace(**usual | schedule)
        context = mock.Mock()
        context.override = lambda _, **its: vars(chosen).update(its)
        configurator = mock.Mock()
        configurator._calculate_mamba_ratio.return_value = 3
        cache = configurator.mambaish_config.mamba2_cache_params
        cache.mamba_cache_per_req = 1 << 20
        runtime = "sglang.srt.runtime_context"
        with (
            mock.patch(f"{runtime}.get_schedule", return_value=chosen),
            mock.patch(f"{runtime}.get_context", return_value=context),
            mock.patch("torch.cuda.mem_get_info", return_value=(free, free)),
        ):
            view.View(mock.Mock()).size_states(configurator)
        # SGLang checks it.
        configurator._handle_max_mamba_cache.assert_called_once()
        return chosen.max_mamba_cache_size

    def test_they_grow_with_requests_and_not_with_the_view(self) -> None:
        self.assertEqual(self.size(), 2 * 32 * 3)
        self.assertEqual(self.size(max_running_requests=None), 2 * 256 * 3)

    def test_the_users_own_number_holds(self) -> None:
        self.assertEqual(self.size(max_mamba_cache_size=7), 7)

    def test_half_of_what_is_free_stays(self) -> None:
        self.assertEqual(self.size(free=20 << 20), 10)


class Drafters(unittest.TestCase):
    MODEL = types.SimpleNamespace(
        layer_info=types.SimpleNamespace(num_effective_layers=4),
        is_hybrid_swa=False,
        mambaish_config=None,
        page_size=16,
        model_config=types.SimpleNamespace(context_len=512),
        kv=(2, 4096),
    )

    def format_with(self, **changed: Any) -> Format:
        drafter = types.SimpleNamespace(**vars(self.MODEL) | changed)
        with mock.patch.object(view, "_planes_and_bytes", lambda it: it.kv):
            return view._format(self.MODEL, [drafter], 8)

    def test_its_layers_are_further_planes(self) -> None:
        found = self.format_with(
            layer_info=types.SimpleNamespace(num_effective_layers=1)
        )
        self.assertEqual(found.planes, 2 * (4 + 1))
        # A request of the longest context also needs room for its drafts.
        self.assertEqual(found.floor_pages, 33 + 2)

    def test_one_of_another_width_is_refused(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "--speculative-draft-model"):
            self.format_with(kv=(2, 2048))


class Start(SglangMachine):
    def refused(self, **arguments: Any) -> str:
        engine = self.start_sglang(WideModel(), view=True, **arguments)
        with self.assertRaises(EngineEnded) as ended:
            engine.answer()
        (line, *_) = [
            line
            for line in str(ended.exception).splitlines()
            if "RuntimeError: FineServe: " in line
        ]
        return line

    def test_an_engine_that_cannot_have_a_view_ends(self) -> None:
        self.start_daemon()
        line = self.refused(
            enable_hierarchical_cache=True,
            hicache_storage_backend="file",
            hicache_io_backend="direct",
            page_size=16,
        )
        self.assertIn("--hicache-storage-backend is not supported", line)
        line = self.refused(max_total_tokens=256)
        self.assertIn("--max-total-tokens 256 leaves room for 256 tokens", line)
        self.assertEqual(self.free_slabs(), self.pool_slabs)
