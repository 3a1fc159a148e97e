"""Records the signatures of the installed vLLM that the doubles must have.

    PYTHON_WITH_VLLM tests/vllm/doubles/generate.py

writes signatures/VERSION.json. Run it for every supported version, adapt the
doubles until test_pool_doubles.py passes.
"""

from __future__ import annotations

import sys

# The installed vLLM, not the double of it beside this file.
sys.path.append(sys.path.pop(0))

import seams  # noqa: E402
import vllm  # noqa: E402


def main() -> None:
    path = seams.SIGNATURES / f"{vllm.__version__}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(seams.dump(seams.record()))
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
