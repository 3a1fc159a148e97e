"""Arguments and JSON of the benches in Python, as bench/micro/report.h for those
in C++."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Callable
from typing import Any, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[1]


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser(name: str, question: str) -> argparse.ArgumentParser:
    """The parser of the bench `name`; `question` is its module's docstring."""
    made = _Parser(
        prog=f"scripts/bench {name}",
        description=question,
        epilog=f"It prints a table. Example:\n\n"
        f"  scripts/bench {name} --json {name}.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="write the figures, and whether each claim holds, as one object",
    )
    return made


def at_most(claim: str, value: float, target: float) -> dict[str, Any]:
    """The claim that `value` is at most `target`, as it appears in the JSON."""
    return {
        "claim": claim,
        "value": value,
        "target": target,
        "holds": value <= target,
    }


def write_json(
    path: pathlib.Path,
    name: str,
    figures: dict[str, Any],
    claims: list[dict[str, Any]],
    **versions: str,
) -> None:
    document = {
        "bench": name,
        "commit": _commit(),
        "machine": _machine() | versions,
        "figures": figures,
        "claims": claims,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def _first_line(read: Callable[[], str]) -> str:
    try:
        return read().strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _commit() -> str:
    return os.environ.get("FINESERVE_COMMIT") or _first_line(
        lambda: (
            subprocess.run(
                ["git", "rev-parse", "HEAD"],
                cwd=ROOT,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
    )


def _machine() -> dict[str, Any]:
    def cpu() -> str:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(": ", 1)[1]
        return "unknown"

    return {
        "cpu": _first_line(cpu),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
