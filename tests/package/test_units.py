"""The units' sandboxing: systemd-analyze security gives each the exposure that
its own comment states.

--units FOLDER is where the build writes the units of the packages.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

STATED = re.compile(r"Exposure by systemd-analyze security \(252\): ([0-9.]+)\.")
FIGURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")


def exposure_of(unit: pathlib.Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    figure = FIGURE.search(done.stdout)
    return figure[1] if figure else f"none: {done.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if shutil.which("systemd-analyze") is None:
        print("SKIP: no systemd-analyze here")
        return 77
    units = sorted(arguments.units.glob("*.service"))
    mistakes = 0
    for unit in units:
        stated = STATED.search(unit.read_text())
        said = stated[1] if stated else "nothing"
        found = exposure_of(unit)
        print(f"{unit.name}: {found}")
        if said != found:
            print(f"{unit.name}: its comment says {said}")
            mistakes += 1
    if len(units) < 3:
        print(f"only {len(units)} units in {arguments.units}")
        mistakes += 1
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
