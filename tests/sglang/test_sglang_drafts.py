"""Speculative decoding on a view: a drafter's KV is in the same slots as the
model's, and is written after each step (label sglang; as
test_gpu_drafts.py)."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from sglang_machine import SglangTrade, WideModel  # sets the path, too
from tiny_models import random_prompts

STEPS = 3


@dataclasses.dataclass(frozen=True)
class Head(WideModel):
    """The draft head of an EAGLE: a layer that reads a token's embedding and
    the hidden state which the model had for the token before. It uses the
    model's embedding and output."""

    layers: int = 1

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from safetensors.torch import load_file, save_file

        path = super().make(folder / "eagle")
        weights = f"{path}/model.safetensors"
        head = {
            name.removeprefix("model."): tensor
            for name, tensor in load_file(weights).items()
            if name.startswith("model.layers.")
            and "input_layernorm" not in name  # the head has none
        }
        if head:  # not yet done
            hidden = self.sizes()["hidden_size"]
            generator = torch.Generator().manual_seed(self.seed)
            shape = {"fc.weight": (hidden, 2 * hidden), "fc.bias": (hidden,)}
            for name, size in shape.items():
                head[name] = self.deviation * torch.randn(
                    size, generator=generator
                )
            save_file(head, weights, metadata={"format": "pt"})
            file = pathlib.Path(path) / "config.json"
            config = json.loads(file.read_text())
            config["architectures"] = ["LlamaForCausalLMEagle"]
            file.write_text(json.dumps(config))
        return path


@dataclasses.dataclass(frozen=True)
class Copy(WideModel):
    """The model with noise added, so that some of its drafts are right."""

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from safetensors.torch import load_file, save_file

        path = super().make(folder / "copy")
        weights = f"{path}/model.safetensors"
        torch.manual_seed(self.seed)
        noisy = {
            name: tensor + NOISE * tensor.std() * torch.randn_like(tensor)
            for name, tensor in load_file(weights).items()
        }
        save_file(noisy, weights, metadata={"format": "pt"})
        return path


NOISE = 0.1  # of the deviation of weights
# With its drafter, the first model has KV in the same number of planes as the
# second.
TRADERS = [WideModel(layers=1), WideModel(seed=2, heads=12)]
DRAFTERS = {"STANDALONE": Copy(layers=1), "EAGLE": Head(seed=3)}


class Drafting(SglangTrade):
    """The first engine drafts on a slow device, so that drafters run when slabs
    are asked back."""

    MODELS = TRADERS
    pool_slabs = 8
    IN_TURN, SHORT, HELD_IN_TURN = 32, 12, 5

    def start_drafting(self, method: str, environment: dict[str, str]) -> None:
        drafting = {
            "speculative_algorithm": method,
            "speculative_draft_model_path": DRAFTERS[method].make(
                self._models
            ),
            "speculative_num_steps": STEPS,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": STEPS + 1,
        }
        self.start_all(environment, [drafting, {}])

    def judge_drafts(self, method: str) -> None:
        self.start_drafting(method, {})
        self.note_pids()
        # The model and the drafter have a layer each.
        self.assertEqual(self.view_of(0)["format"]["planes"], 4)
        self.in_turns()
        self.together_until(self.has_traded, 24)
        self.assertTrue(self.has_traded())
        self.check_all()

    def judged(self) -> float:
        """Returns the mean number of tokens that a request gets in a step."""
        prompts = random_prompts(99, 16, (20, 60))
        answer = self.engines[0].run(
            "generate", prompts=prompts, max_tokens=[32] * 16
        )
        wrong = self.reference(self.MODELS[0]).wrong(prompts, answer["tokens"])
        count = sum(map(len, answer["tokens"]))
        print(f"{count} tokens, {wrong} wrong, in {answer['judged']} steps")
        self.assertEqual(wrong, 0)
        return float(count / answer["judged"])


class ByAModel(Drafting):
    def test_tokens_drafted_by_a_model_are_judged_rightly(self) -> None:
        self.judge_drafts("STANDALONE")
        # Some drafts are right, and some are not.
        rate = self.judged()
        self.assertGreater(rate, 1.2)
        self.assertLess(rate, STEPS + 0.8)


class ByAnEagle(Drafting):
    def test_tokens_drafted_by_an_eagle_are_judged_rightly(self) -> None:
        self.judge_drafts("EAGLE")
        self.assertGreaterEqual(self.judged(), 0.9)


class WithoutDraining(Drafting):
    """The breakage must make the tests above fail."""

    def test_a_slab_returned_in_use_is_noticed(self) -> None:
        self.start_drafting("STANDALONE", {"HOST_DEVICE_BREAK": "undrained"})
        self.notice_wrong_tokens()
