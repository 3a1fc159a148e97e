"""Requests of a real trace to more models than a GPU holds: what each got, when."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import real_trace
from real_trace import Request
from serving_site import completion

# Limits within which the host can compute for several engines.
MOST_INPUT, MOST_OUTPUT = 120, 12
GIVEN_UP_S = 600  # by its client
SLOS_S = 1, 2, 5, 10, 20


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`ttft_s` counts from the request's time in the trace, and is infinite if
    no token came. `failure` is empty if the answer is complete."""

    request: Request
    tokens: list[int]
    ttft_s: float
    failure: str


def requests_of(
    trace: pathlib.Path,
    models: Sequence[str],
    speed: float,
    within_s: tuple[float, float],
) -> list[Request]:
    """Returns the requests to every second model of the trace, from the busiest
    one on, in the part `within_s`. Each of these models gets one of the names
    in `models`. The order and the gaps are the trace's, its lengths are cut,
    and the tokens are random."""
    first_s, end_s = within_s
    rows = real_trace.rows_of(trace)
    asked = real_trace.models_by_use(rows)
    name_of = dict(zip((model for model, _ in asked[::2]), models))
    part = [
        dataclasses.replace(row, at_s=row.at_s - first_s)
        for row in rows
        if row.model in name_of and first_s <= row.at_s < end_s
    ]
    return real_trace.requests_of(
        part, name_of, speed, MOST_INPUT, MOST_OUTPUT
    )


def answers_to(
    requests: Sequence[Request],
    port_for: Callable[[str], contextlib.AbstractContextManager[int]],
) -> list[Outcome]:
    """Sends each request at its time. `port_for`: waits until a model's request
    may go, and gives the port."""
    began = time.monotonic()

    def ask(request: Request) -> Outcome:
        due = began + request.at_s
        time.sleep(max(0.0, due - time.monotonic()))
        tokens: list[int] = []
        times: list[float] = []
        try:
            with port_for(request.model) as port:
                failure = _stream(port, request, tokens, times)
        except (OSError, http.client.HTTPException, TimeoutError) as error:
            failure = repr(error)
        if not failure and len(tokens) != request.output_tokens:
            failure = f"{len(tokens)} of {request.output_tokens} tokens"
        first = times[0] - due if times else math.inf
        return Outcome(request, tokens, first, failure)

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as clients:
        return list(clients.map(ask, requests))


def _stream(
    port: int, request: Request, tokens: list[int], times: list[float]
) -> str:
    """Appends the tokens of a greedy completion, and the arrival time of each
    event that had tokens. Returns why the request failed."""
    body = completion(request.model, request.prompt, request.output_tokens)
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=GIVEN_UP_S
    )
    with contextlib.closing(connection):
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(body | {"stream": True}),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            return f"{answer.status}: {answer.read().decode()}"
        for line in answer:
            _, _, event = line.decode().strip().partition("data: ")
            if not event or event == "[DONE]":
                continue
            said = json.loads(event)
            if "choices" not in said:
                return event
            new = [t for one in said["choices"] for t in one["token_ids"] or []]
            tokens += new
            times += [time.monotonic()] * bool(new)
    return ""


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns the times of answered requests, and shares of all requests."""
    answered = sorted(o.ttft_s for o in outcomes if not o.failure)

    def percentile(part: float) -> float | None:
        """The nearest rank."""
        if not answered:
            return None
        return round(answered[math.ceil(part * len(answered)) - 1], 2)

    return {
        "requests": len(outcomes),
        "answered": len(answered),
        "tokens": sum(len(o.tokens) for o in outcomes),
        "ttft_p50_s": percentile(0.5),
        "ttft_p99_s": percentile(0.99),
    } | {
        f"within_{slo}_s": round(
            100 * sum(ttft <= slo for ttft in answered) / len(outcomes), 1
        )
        for slo in SLOS_S
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Returns a table with a line for each way, and a column for each figure
    that any way has."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [["way", *names], ["---"] * (1 + len(names))] + [
        [way, *(str(row.get(name, "–")) for name in names)]
        for way, row in rows.items()
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
