"""Clients that replay the requests of a real trace while parts of a site are
killed. Each client sends its request again until it is answered."""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence

import real_trace
from real_trace import Request
from serving_site import Answer, ServingSite

CLIENTS = 12  # of each engine
PAUSE_S = 0.5  # before a request is sent again
# Limits within which the host can compute for two engines.
MOST_INPUT, MOST_OUTPUT = 400, 16


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
    """Excuses the requests to these engines that a kill may have cost in this
    time."""

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
) -> dict[str, list[Request]]:
    """Returns each engine's requests at the trace's own times, with its lengths
    cut and with random tokens. Each of the trace's models, the busiest first,
    goes to the engine that has the fewest requests so far."""
    rows = real_trace.rows_of(path)
    load = dict.fromkeys(engines, 0)
    engine_of = {}
    for model, count in real_trace.models_by_use(rows):
        engine_of[model] = min(load, key=load.__getitem__)
        load[engine_of[model]] += count
    trace: dict[str, list[Request]] = {engine: [] for engine in engines}
    for request in real_trace.requests_of(
        rows, engine_of, speed, MOST_INPUT, MOST_OUTPUT
    ):
        trace[request.model].append(request)
    return trace


class Replay:
    """Starts at once and repeats the trace until stop(). If all clients of an
    engine are busy, its next request is late."""

    def __init__(
        self, site: ServingSite, trace: dict[str, list[Request]]
    ) -> None:
        self._site = site
        self._began = time.monotonic()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self.answered: dict[str, list[tuple[Request, list[int]]]] = {
            engine: [] for engine in trace
        }
        self.attempts: list[Attempt] = []
        # The trace ends with the last request of any engine.
        length_s = max(requests[-1].at_s for requests in trace.values())
        self._threads = [
            threading.Thread(target=self._serve, args=(engine, requests))
            for engine, once in trace.items()
            for requests in [_for_ever(once, length_s)]
            for _ in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Sends no new requests, and returns when all that were sent are
        answered."""
        self._end.set()
        for thread in self._threads:
            thread.join()

    def counts(self) -> dict[str, int]:
        """Returns the number of requests that each engine has answered."""
        return {engine: len(them) for engine, them in self.answered.items()}

    def failed(self) -> list[Attempt]:
        with self._lock:
            return [a for a in self.attempts if a.status != 200]

    def _serve(self, engine: str, requests: Iterator[Request]) -> None:
        while True:
            with self._lock:
                request = next(requests)
            wait_s = self._began + request.at_s - time.monotonic()
            if self._end.wait(max(0.0, wait_s)):
                return
            tokens = self._ask_until_answered(engine, request)
            with self._lock:
                self.answered[engine].append((request, tokens))

    def _ask_until_answered(self, engine: str, request: Request) -> list[int]:
        while True:
            began = time.monotonic()
            answer = self._ask(engine, request)
            attempt = Attempt(
                engine, began, time.monotonic(), answer.status, answer.body
            )
            with self._lock:
                self.attempts.append(attempt)
            if answer.status == 200:
                return answer.tokens
            time.sleep(PAUSE_S)

    def _ask(self, engine: str, request: Request) -> Answer:
        try:
            return self._site.complete(
                engine, request.prompt, request.output_tokens
            )
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, [], repr(error))


def _for_ever(once: list[Request], length_s: float) -> Iterator[Request]:
    for turn in itertools.count():
        for request in once:
            yield dataclasses.replace(
                request, at_s=request.at_s + turn * length_s
            )
