"""Requests of a real trace, with lengths that the host can compute."""

from __future__ import annotations

import collections
import csv
import dataclasses
import gzip
import pathlib
import random
from collections.abc import Iterable, Mapping

from tiny_models import VOCABULARY


@dataclasses.dataclass(frozen=True)
class Row:
    at_s: float
    model: str
    input_tokens: int
    output_tokens: int


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of the trace. model: the name that the client sends."""

    at_s: float
    model: str
    prompt: list[int]
    output_tokens: int


def rows_of(path: pathlib.Path) -> list[Row]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        return [
            Row(
                float(row["timestamp_s"]),
                row["model"],
                int(row["input_tokens"]),
                int(row["output_tokens"]),
            )
            for row in csv.DictReader(file)
        ]


def models_by_use(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Returns the trace's models and the number of requests for each, the
    busiest first."""
    return collections.Counter(row.model for row in rows).most_common()


def requests_of(
    rows: Iterable[Row],
    name_of: Mapping[str, str],
    speed: float,
    most_input: int,
    most_output: int,
) -> list[Request]:
    """Returns a request of random tokens for each row, its lengths limited to
    `most_input` and `most_output`."""
    rng = random.Random(1)
    return [
        Request(
            row.at_s / speed,
            name_of[row.model],
            [
                rng.randrange(VOCABULARY)
                for _ in range(min(row.input_tokens, most_input))
            ],
            min(row.output_tokens, most_output),
        )
        for row in rows
    ]
