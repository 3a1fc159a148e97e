"""Clients that replay the requests of a real trace while parts of a site are
killed: each sends its request again until it is answered."""

from __future__ import annotations

import collections
import csv
import dataclasses
import gzip
import http.client
import itertools
import pathlib
import random
import threading
import time
from collections.abc import Iterator, Sequence

from serving_site import Answer, ServingSite
from tiny_models import VOCABULARY

CLIENTS = 12  # of each engine
PAUSE_S = 0.5  # before a request is sent again
# Limits within which the host can compute for two engines.
MOST_INPUT, MOST_OUTPUT = 400, 16


@dataclasses.dataclass(frozen=True)
class Arrival:
    at_s: float
    prompt: list[int]
    output_tokens: int


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A request as it was sent once."""

    engine: str
    began: float
    ended: float
    status: int  # 0: the connection ended without an answer
    body: str


@dataclasses.dataclass(frozen=True)
class Outage:
    """Requests that a kill may have cost: to these engines, in this time."""

    what: str
    engines: set[str]
    began: float
    ended: float

    def excuses(self, attempt: Attempt) -> bool:
        return (
            attempt.engine in self.engines
            and attempt.began < self.ended
            and attempt.ended > self.began
        )


def trace_of(
    path: pathlib.Path, engines: Sequence[str], speed: float
) -> dict[str, list[Arrival]]:
    """Each engine's requests at the trace's own times, its lengths cut, of
    random tokens. Each of the trace's models, the busiest first, goes to the
    engine that has the fewest requests yet."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        rows = list(csv.DictReader(file))
    requests = collections.Counter(row["model"] for row in rows)
    load = dict.fromkeys(engines, 0)
    engine_of = {}
    for model, count in requests.most_common():
        engine_of[model] = min(load, key=load.__getitem__)
        load[engine_of[model]] += count
    rng = random.Random(1)
    trace: dict[str, list[Arrival]] = {engine: [] for engine in engines}
    for row in rows:
        trace[engine_of[row["model"]]].append(
            Arrival(
                float(row["timestamp_s"]) / speed,
                [
                    rng.randrange(VOCABULARY)
                    for _ in range(min(int(row["input_tokens"]), MOST_INPUT))
                ],
                min(int(row["output_tokens"]), MOST_OUTPUT),
            )
        )
    return trace


class Replay:
    """Starts at once and goes through the trace again and again until stop().
    Where all clients of an engine are busy, its next request comes late."""

    def __init__(
        self, site: ServingSite, trace: dict[str, list[Arrival]]
    ) -> None:
        self._site = site
        self._began = time.monotonic()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self.answered: dict[str, list[tuple[Arrival, list[int]]]] = {
            engine: [] for engine in trace
        }
        self.attempts: list[Attempt] = []
        # The trace ends when its last request of any engine has come.
        length_s = max(arrivals[-1].at_s for arrivals in trace.values())
        self._threads = [
            threading.Thread(target=self._serve, args=(engine, arrivals))
            for engine, once in trace.items()
            for arrivals in [_for_ever(once, length_s)]
            for _ in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when all requests that have been sent are answered."""
        self._end.set()
        for thread in self._threads:
            thread.join()

    def counts(self) -> dict[str, int]:
        """Requests that each engine has answered."""
        return {engine: len(them) for engine, them in self.answered.items()}

    def failed(self) -> list[Attempt]:
        with self._lock:
            return [a for a in self.attempts if a.status != 200]

    def _serve(self, engine: str, arrivals: Iterator[Arrival]) -> None:
        while True:
            with self._lock:
                arrival = next(arrivals)
            wait_s = self._began + arrival.at_s - time.monotonic()
            if self._end.wait(max(0.0, wait_s)):
                return
            tokens = self._ask_until_answered(engine, arrival)
            with self._lock:
                self.answered[engine].append((arrival, tokens))

    def _ask_until_answered(self, engine: str, arrival: Arrival) -> list[int]:
        while True:
            began = time.monotonic()
            answer = self._ask(engine, arrival)
            attempt = Attempt(
                engine, began, time.monotonic(), answer.status, answer.body
            )
            with self._lock:
                self.attempts.append(attempt)
            if answer.status == 200:
                return answer.tokens
            time.sleep(PAUSE_S)

    def _ask(self, engine: str, arrival: Arrival) -> Answer:
        try:
            return self._site.complete(
                engine, arrival.prompt, arrival.output_tokens
            )
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, [], repr(error))


def _for_ever(once: list[Arrival], length_s: float) -> Iterator[Arrival]:
    for turn in itertools.count():
        for arrival in once:
            yield dataclasses.replace(
                arrival, at_s=arrival.at_s + turn * length_s
            )
