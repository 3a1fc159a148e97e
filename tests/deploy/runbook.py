"""The entries of scripts/docs/runbook.md."""

from __future__ import annotations

import pathlib
import re

RUNBOOK = pathlib.Path(__file__).parents[2] / "scripts/docs/runbook.md"
ENTRY = re.compile(r"^## ([a-z-]+)\n\n```console\n\$ (.*)\n((?:.+\n)+?)```$", re.M)


def entries() -> dict[str, tuple[str, list[str]]]:
    """Returns each symptom's command and the lines that the command prints."""
    return {
        name: (command, lines.splitlines())
        for name, command, lines in ENTRY.findall(RUNBOOK.read_text())
    }


def pattern_of(line: str) -> re.Pattern[str]:
    """Returns a pattern in which blanks match any blanks, and … matches
    anything on the line."""
    words = [re.escape(word) for word in line.split()]
    return re.compile(r"[ \t]+".join(words).replace("…", r"[^\n]*?"))
