"""A load of short requests: one after the other, by so many clients.

Prints one JSON object when it gets a line on standard input: how many were
answered, and what went wrong with the others.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import sys
import threading


def ask(host: str, port: int, model: str) -> str:
    """Empty if the request was answered."""
    body = {"model": model, "prompt": "four words of prompt", "max_tokens": 8}
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
        return "" if json.loads(text)["choices"][0]["text"] else "empty"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    lock = threading.Lock()
    ending = threading.Event()

    def work(model: str) -> None:
        while not ending.is_set():
            trouble = ask("127.0.0.1", arguments.port, model)
            with lock:
                counts[trouble] += 1

    threads = [
        threading.Thread(
            target=work, args=(arguments.models[i % len(arguments.models)],)
        )
        for i in range(arguments.clients)
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
