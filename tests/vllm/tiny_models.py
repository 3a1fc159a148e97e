"""Tiny models with random weights, and the tokens that they must generate."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Sequence
from typing import Any

VOCABULARY = 512
MAX_TOKENS = 512  # of a request
# Greatest difference of a token's logits due to sums in another order.
TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Model:
    """A tiny model of random weights. A block of 16 tokens takes `layers` times
    32 KiB: the models' KV differs in format.

    deviation: of the weights. With the usual 0.02 the next token hardly depends
    on context; with 0.2 it depends on each earlier token, and on rounding to
    half precision too; with 0.08 texts begin to repeat themselves.
    """

    layers: int
    seed: int
    deviation: float = 0.2

    @property
    def block_bytes(self) -> int:
        return self.layers * 32 << 10

    def make(self, folder: pathlib.Path) -> str:
        import torch
        from transformers import AutoModelForCausalLM

        kind = type(self).__name__
        path = folder / f"{kind}-{self.layers}-{self.seed}-{self.deviation}"
        if not path.exists():
            torch.manual_seed(self.seed)
            model = AutoModelForCausalLM.from_config(self.configuration())
            model.to(torch.float32).save_pretrained(path)
            _save_tokenizer(path)
        return str(path)

    def configuration(self) -> Any:
        """Returns the model's architecture as transformers describes it."""
        from transformers import LlamaConfig

        return LlamaConfig(**self.sizes(), head_dim=64)

    def engine_arguments(self) -> dict[str, Any]:
        """Returns the engine arguments that this model needs besides those of
        the device."""
        return {}

    def sizes(self) -> dict[str, Any]:
        """Returns the sizes that all architectures share."""
        return {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": self.layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": MAX_TOKENS,
            "initializer_range": self.deviation,
        }


# One word per token: a syllable or, for example, "w70". loadgen's words are of
# two syllables, such as "bato", of which only the first counts.
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
_WORDS = _SYLLABLES + [f"w{i}" for i in range(len(_SYLLABLES), VOCABULARY)]


def text_of(tokens: Sequence[int]) -> str:
    return " ".join(_WORDS[token] for token in tokens)


def tokens_of(text: str) -> list[int]:
    """Returns the tokens of a text that an engine has generated."""
    return [_WORDS.index(word) for word in text.split()]


def _save_tokenizer(path: pathlib.Path) -> None:
    """Saves a tokenizer whose chat template is just the contents of the
    messages."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel(
            {word: token for token, word in enumerate(_WORDS)},
            unk_token=_WORDS[0],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\s+|(?<=[a-z]{2})[a-z]{2}\b"), behavior="removed"
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template="{% for m in messages %}{{ m['content'] }} {% endfor %}",
    ).save_pretrained(path)


class Reference:
    """The same model in transformers, on the CPU."""

    def __init__(self, path: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32
        )

    tolerance = TOLERANCE

    def wrong(
        self, prompts: Sequence[list[int]], outputs: Sequence[list[int]]
    ) -> int:
        """Counts the tokens that are not the most likely one after all tokens
        before them. Each token is judged after the engine's own tokens, so one
        wrong token does not make the rest wrong."""
        return sum(map(self._wrong, prompts, outputs))

    def _wrong(self, prompt: list[int], output: list[int]) -> int:
        shortfalls = self.shortfalls(prompt, output).tolist()
        return sum(
            short > self.tolerance
            and not self.excuses(prompt + output[:i], output[i], short)
            for i, short in enumerate(shortfalls)
        )

    def excuses(self, context: list[int], token: int, short: float) -> bool:
        """Returns True if a token may be right although its logit is `short`
        below the greatest."""
        return False

    def shortfalls(self, prompt: list[int], output: list[int]) -> Any:
        """Returns how far the logit of each token is below the greatest."""
        torch = self._torch
        with torch.no_grad():
            logits = self._logits(torch.tensor([prompt + output]))[0]
        logits = logits[len(prompt) - 1 : -1]
        given = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        return logits.max(-1).values - given

    def _logits(self, tokens: Any) -> Any:
        return self._model(tokens).logits


def random_prompts(
    seed: int, count: int, lengths: tuple[int, int], shared: int = 0
) -> list[list[int]]:
    """Returns `count` prompts; half of them begin with the same `shared`
    tokens."""
    rng = random.Random(seed)
    prefix = [rng.randrange(VOCABULARY) for _ in range(shared)]
    return [
        prefix * (i % 2)
        + [rng.randrange(VOCABULARY) for _ in range(rng.randint(*lengths))]
        for i in range(count)
    ]
