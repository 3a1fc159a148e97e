"""A stock PyTorch process that a test controls: one line of JSON in, one out.

Each request is Python source, run in one namespace where `torch` is imported;
the answer holds what the source left in `out`, or the error it raised.
"""

import json
import sys
import traceback

import torch


def main() -> None:
    namespace = {"torch": torch}
    for line in sys.stdin:
        namespace["out"] = None
        try:
            exec(json.loads(line), namespace)
            answer = {"out": namespace["out"]}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
