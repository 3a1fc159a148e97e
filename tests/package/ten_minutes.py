"""The tutorial from a clone to an answer, on a bare Debian 12: runs each of its
commands as it is written there, and prints the minutes of each.

The clone is of this repository's last commit, and is not fetched over a network;
packages of Debian and NVIDIA's compiler are. Wall times mean something on an
otherwise idle machine; CPU times, which leave out what services do, anywhere.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import bare_debian

SOURCE = pathlib.Path(__file__).parent.parent.parent
TUTORIAL = SOURCE / "scripts/docs/tutorial.md"
CLONE = "/srv/fineserve"
PATIENCE_S = 600


def tutorial(section: str) -> list[str]:
    """Returns the commands of a section of the tutorial."""
    text = TUTORIAL.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    return re.findall(r"^\$ (.*)$", "".join(blocks), re.M)


class Clock:
    """Times steps, and prints a line for each."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    def step(self, what: str, run: Callable[[], object]) -> None:
        wall, cpu = time.monotonic(), _cpu_s()
        run()
        wall, cpu = time.monotonic() - wall, _cpu_s() - cpu
        self.wall_s += wall
        self.cpu_s += cpu
        self._print(wall, cpu, what)

    def total(self) -> None:
        self._print(self.wall_s, self.cpu_s, "in all")

    def _print(self, wall_s: float, cpu_s: float, what: str) -> None:
        print(f"{wall_s / 60:6.1f} {cpu_s / 60:6.1f}  {what}", flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def clone(machine: bare_debian.Machine) -> None:
    subprocess.run(
        ["git", "clone", "--quiet", str(SOURCE), f"{machine.root}{CLONE}"],
        check=True,
    )


def fetch_dependencies(machine: bare_debian.Machine) -> None:
    made = (machine.root / CLONE.lstrip("/") / "build/packages").glob("*.deb")
    machine.fetch_dependencies([f"{CLONE}/build/packages/{deb.name}" for deb in made])


def wait_until_both_serve(machine: bare_debian.Machine) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        models = machine.run("fsctl models --json")
        if models.returncode == 0:
            engines = [
                engine["serves"]
                for model in json.loads(models.stdout)["models"]
                for engine in model["engines"]
            ]
            if engines == [True, True]:
                return
        if time.monotonic() > deadline:
            raise AssertionError(f"two engines serve: {models.stdout}{models.stderr}")
        time.sleep(0.2)


def run_tutorial(machine: bare_debian.Machine, clock: Clock) -> None:
    clock.step("git clone, of a local repository", lambda: clone(machine))
    machine.lend_network()
    for command in tutorial("Packages"):
        clock.step(command, lambda: machine.before_boot(CLONE, command))
    clock.step("(downloads of the next command)", lambda: fetch_dependencies(machine))
    machine.boot()
    for command in tutorial("From nothing to two models"):
        clock.step(command, lambda: machine.check(f"cd {CLONE} && {command}"))
    clock.step("(until both models serve)", lambda: wait_until_both_serve(machine))
    for command in tutorial("A request"):
        clock.step(command, lambda: print("   ", machine.check(command).strip()))


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if why := bare_debian.why_not():
        print(f"SKIP: {why}")
        return 77
    machine = bare_debian.Machine()
    clock = Clock()
    print("  wall    CPU  minutes of each step")
    try:
        run_tutorial(machine, clock)
    finally:
        machine.close()
    clock.total()
    return 0


if __name__ == "__main__":
    sys.exit(main())
