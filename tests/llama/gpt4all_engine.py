"""Stock GPT4All with a model on the GPU: gpt4all_engine.py MODEL TOKENS.

TOKENS: length of its context, for which llama.cpp allocates KV at its start. It
prints "loaded" with the device, then obeys each line from stdin until their end:
it generates some tokens and prints "generated". A line begins with "ok" or
"error"; llama.cpp's own are among them.
"""

from __future__ import annotations

import pathlib
import sys

from gpt4all import GPT4All

model, tokens = pathlib.Path(sys.argv[1]), int(sys.argv[2])
try:
    llm = GPT4All(
        model.name,
        model_path=str(model.parent),
        allow_download=False,
        device="cuda",
        n_ctx=tokens,
        verbose=False,
    )
    llm.generate("a", max_tokens=1)  # makes the context
except Exception as error:
    print("error", error, flush=True)
    sys.exit(1)
print("ok loaded", llm.device, flush=True)
for line in sys.stdin:
    llm.generate(line, max_tokens=8)
    print("ok generated", flush=True)
