"""References in transformers whose KV is rounded as an FP8 cache does it.

Rounding makes small differences large: a key between two numbers of FP8 is
rounded to one or the other depending on the order of a sum, and the next token
may change with it. A model generated 38,400 tokens in double precision, with
keys and values rounded and no block manager; its reference in single precision
found 3 of them short of the best by more than 0.1 of a logit. So a
token that is short is looked at more closely: it is a near tie if it is the
best one once one or two keys or values on the edge are rounded to their other
neighbours. One explains each of the three, and of 541 tokens that were wrong
because of a stale block 6, none of them short by 0.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_models import Reference

K_SCALE, V_SCALE = 0.5, 0.25  # powers of two: exact

# Greatest distance from a rounding edge at which a number counts as on it,
# relative to a tensor's root mean square. In the last layer, keys and values in
# single and double precision differ by 3.4e-6 in the root mean square (2e-7 in
# the first layer).
EDGE = 3e-6
# A token whose logit falls short by more than this is wrong without a closer
# look.
CLOSE = 0.3
# At most this many numbers may have been rounded the other way.
MOST = 2

# A number on the edge: the index of its tensor in the order of rounding, its
# place in that tensor, and its other neighbour.
_OnEdge = tuple[int, tuple[int, ...], float]


def to_fp8(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.float8_e4m3fn).float()


class Rounding:
    """Rounds the tensors of one pass through a model.

    Args:
        others: the numbers that are rounded to their other neighbours.
        collect: whether to find the numbers on the edge.
    """

    def __init__(
        self, others: Sequence[_OnEdge] = (), collect: bool = False
    ) -> None:
        self.on_edge: list[_OnEdge] = []
        self._others = others
        self._collect = collect
        self._count = 0

    def __call__(self, tensor: Any, scale: float = 1) -> Any:
        scaled = tensor / scale
        rounded = to_fp8(scaled)
        if self._collect:
            self._find_edges(scaled, rounded)
        for count, place, value in self._others:
            if count == self._count:
                rounded[place] = value
        self._count += 1
        return rounded * scale

    def _find_edges(self, scaled: Any, rounded: Any) -> None:
        room = EDGE * scaled.square().mean().sqrt()
        below, above = to_fp8(scaled - room), to_fp8(scaled + room)
        for found in (below != above).nonzero().tolist():
            place = tuple(found)
            other = below if rounded[place] == above[place] else above
            self.on_edge.append((self._count, place, float(other[place])))


class RoundedReference(Reference):
    """Distinguishes near ties of rounding from wrong tokens, and counts the
    near ties."""

    # A sum that is computed in another order may round to the neighbour.
    tolerance = 0.1

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.near_ties = 0

    def _rounded_logits(self, tokens: Any, rounding: Rounding) -> Any:
        raise NotImplementedError

    def _logits(self, tokens: Any) -> Any:
        return self._rounded_logits(tokens, Rounding())

    def excuses(self, context: list[int], token: int, short: float) -> bool:
        if short > CLOSE:
            return False
        collected = Rounding(collect=True)
        self._short_by(context, token, collected)
        others: list[_OnEdge] = []
        while (
            short > self.tolerance
            and collected.on_edge
            and len(others) < MOST
        ):
            short, best = min(
                (self._short_by(context, token, Rounding([*others, one])), one)
                for one in collected.on_edge
            )
            others.append(best)
        found = short <= self.tolerance
        print(
            f"a token is short; with {len(others)} of "
            f"{len(collected.on_edge)} numbers on the edge rounded the other "
            f"way, by {short:.3f} of a logit",
            flush=True,
        )
        self.near_ties += found
        return found

    def _short_by(
        self, context: list[int], token: int, rounding: Rounding
    ) -> float:
        torch = self._torch
        with torch.no_grad():
            logits = self._rounded_logits(torch.tensor([context]), rounding)
        last = logits[0, -1]
        return float(last.max() - last[token])


class Fp8Reference(RoundedReference):
    """Rounds keys and values with the scales of gpu_variants.Fp8Model."""

    scales: tuple[float, float] = (K_SCALE, V_SCALE)

    def _rounded_logits(self, tokens: Any, rounding: Rounding) -> Any:
        cache = _rounding_cache(rounding, self.scales)
        return self._model(tokens, past_key_values=cache, use_cache=True).logits


class Fp8LatentReference(RoundedReference):
    """Rounds the latents of gpu_latent.LatentModel with a scale of 1. If a
    prompt is not split over steps, vLLM computes it from latents that are not
    rounded, and what follows from the latents in the cache."""

    def _wrong(self, prompt: list[int], output: list[int]) -> int:
        self._prompt_tokens = len(prompt)
        return super()._wrong(prompt, output)

    def _rounded_logits(self, tokens: Any, rounding: Rounding) -> Any:
        cache = _rounding_cache(rounding, (1, 1))
        logits = []
        cache.reads_rounded = False
        for part in tokens.tensor_split([self._prompt_tokens], dim=1):
            if part.shape[1]:
                logits.append(
                    self._model(
                        part, past_key_values=cache, use_cache=True
                    ).logits
                )
            cache.reads_rounded = True
        return self._torch.cat(logits, dim=1)


def _rounding_cache(
    rounding: Rounding, scales: tuple[float, float]
) -> Any:
    """Returns a cache for transformers that keeps both tensors of a layer as
    `rounding` changes them. With reads_rounded False, attention reads new
    tensors unrounded."""
    from transformers import DynamicCache

    class Rounded(DynamicCache):
        reads_rounded = True

        def update(self, one: Any, other: Any, *rest: Any) -> Any:
            kept = super().update(
                rounding(one, scales[0]), rounding(other, scales[1]), *rest
            )
            return kept if self.reads_rounded else (one, other)

    return Rounded()
