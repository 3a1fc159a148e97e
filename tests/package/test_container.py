"""The container image: its root file system is made by Debian's own tools, and
the Containerfile's entry point runs in it as the Containerfile's user."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import bare_debian

SOURCE = pathlib.Path(__file__).parent.parent.parent
CONTAINER = SOURCE / "tools/deploy/container"


def containerfile() -> dict[str, str]:
    """Its instructions, by name."""
    text = (CONTAINER / "Containerfile").read_text()
    return dict(re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE))


def run_in(root: pathlib.Path, recipe: dict[str, str], words: list[str]) -> str:
    variable, _, value = recipe["ENV"].partition("=")
    done = subprocess.run(
        [
            *("systemd-nspawn", "--quiet", f"--directory={root}"),
            *("--register=no", "--keep-unit", "--private-network"),
            *("--console=pipe", f"--user={recipe['USER']}"),
            f"--setenv={variable}={value}",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        sys.exit(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release")
    parser.add_argument("--packages", help="folder of packages that are made")
    arguments = parser.parse_args()
    if why := bare_debian.why_not():
        print(f"SKIP: {why}")
        return 77
    recipe = containerfile()
    with tempfile.TemporaryDirectory(prefix="fineserve-container-") as made:
        packages = arguments.packages or f"{made}/packages"
        if arguments.packages is None:
            subprocess.run(
                [SOURCE / "scripts/package", "--preset", arguments.preset]
                + ["--output", packages],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        tar = pathlib.Path(made) / recipe["ADD"].split()[0]
        subprocess.run([CONTAINER / "make_root", packages, tar], check=True)
        root = pathlib.Path(made) / "root"
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xf", tar], check=True)
        print(f"root file system: {tar.stat().st_size >> 20} MiB")
        entry = json.loads(recipe["ENTRYPOINT"])
        plan = ["--gpu", "emulated", "--pool", "64MiB", "--dry-run"]
        assert "64 MiB in" in run_in(root, recipe, entry + plan)
        for program in ("fsctl", "fineserve-proxy"):
            run_in(root, recipe, [f"/usr/bin/{program}", "--version"])
        assert not (root / "debs").exists()
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
