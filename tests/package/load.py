"""A load of short requests: one after the other, by so many clients.

Prints one JSON object when it gets a line on standard input: how many were
answered, and what went wrong with the others. A model must give the same answer
to the same prompt each time.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import itertools
import json
import sys
import threading
import time


PROMPTS = 50
_first_answers: dict[tuple[str, str], str] = {}


def ask(host: str, port: int, model: str, prompt: str, tokens: int) -> str:
    """Sends a request and returns its error; empty if it was answered as
    before."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens}
    connection = http.client.HTTPConnection(host, port, timeout=120)
    try:
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            return f"{response.status}: {text[:200]}"
        answer = json.loads(text)["choices"][0]["text"]
        if not answer:
            return "empty"
        same = answer == _first_answers.setdefault((model, prompt), answer)
        return "" if same else "another answer than before"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--words", type=int, default=4, help="of a prompt")
    parser.add_argument("--tokens", type=int, default=8, help="of an answer")
    parser.add_argument(
        "--wave",
        type=float,
        default=0,
        help="all ask one model for so many seconds, then the next",
    )
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    lock = threading.Lock()
    ending = threading.Event()

    def model_of(client: int) -> str:
        turn = time.monotonic() / arguments.wave if arguments.wave else client
        return arguments.models[int(turn) % len(arguments.models)]

    def work(client: int) -> None:
        for i in itertools.count():
            if ending.is_set():
                return
            model = model_of(client)
            number = i % PROMPTS
            prompt = " ".join(f"word{number}" for _ in range(arguments.words))
            trouble = ask(
                "127.0.0.1", arguments.port, model, prompt, arguments.tokens
            )
            with lock:
                counts[trouble] += 1

    threads = [
        threading.Thread(target=work, args=(i,)) for i in range(arguments.clients)
    ]
    for thread in threads:
        thread.start()
    print("started", flush=True)
    sys.stdin.readline()
    ending.set()
    for thread in threads:
        thread.join()
    answered = counts.pop("", 0)
    print(json.dumps({"answered": answered, "troubles": counts}), flush=True)


if __name__ == "__main__":
    main()
