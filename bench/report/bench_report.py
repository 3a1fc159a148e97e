"""Arguments and JSON reports of the Python benches, as report.h for the
C++ benches."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser(name: str, question: str) -> argparse.ArgumentParser:
    """Returns the argument parser of the bench `name`; `question` is the
    docstring of the bench's module."""
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


def add_parts(
    made: argparse.ArgumentParser, parts: Sequence[str], rounds: int
) -> None:
    """Adds --rounds and --only, for a bench of several parts."""
    made.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        help="of each part that has some (%(default)s)",
    )
    made.add_argument("--only", choices=parts, help="one part instead of all")


def run_parts(
    machine: type[Any],
    report: "Report",
    parts: Iterable[Callable[[Any, "Report"], None]],
    only: str | None,
) -> None:
    """Runs each part, or only the part called `only`, on a fresh `machine`, a
    unittest.TestCase that cleans up after the part."""
    try:
        for part in parts:
            if only not in (None, part.__name__):
                continue
            machine.setUpClass()
            site = machine()
            site.setUp()
            try:
                part(site, report)
            finally:
                site.doCleanups()
    finally:
        machine.doClassCleanups()


def ratios_to_plain(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """Returns, by way and round, the ratio of the rate to the mean rate of the
    two engines without the shim, "plain" and "plain_again"."""
    plain = [
        statistics.mean(both)
        for both in zip(rates["plain"], rates["plain_again"])
    ]
    return {
        way: [a / b for a, b in zip(its, plain)] for way, its in rates.items()
    }


class Report:
    """Collects a bench's figures and claims, and prints each when it is
    added."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, Any]] = []

    def figure(self, name: str, value: float) -> None:
        self.figures[name] = round(value, 3)
        print(f"  {name:56} {value:10.2f}", flush=True)

    def at_least(self, claim: str, value: float, target: float) -> None:
        self._claim(claim, value, target, value >= target, ">=")

    def at_most(self, claim: str, value: float, target: float) -> None:
        self._claim(claim, value, target, value <= target, "<=")

    def _claim(
        self, claim: str, value: float, target: float, holds: bool, sign: str
    ) -> None:
        self.claims.append(
            {"claim": claim, "value": value, "target": target, "holds": holds}
        )
        print(
            f"  {claim:56} {value:10.3f}  {sign} {target:g}  "
            f"{'holds' if holds else 'DOES NOT HOLD'}",
            flush=True,
        )

    def write(self, path: pathlib.Path | None, name: str, **versions: str) -> None:
        """Writes the report to the file of --json, if there is one."""
        if path is None:
            return
        document = {
            "bench": name,
            "commit": _commit(),
            "machine": _machine() | versions,
            "figures": self.figures,
            "claims": self.claims,
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
