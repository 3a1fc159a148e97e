"""The first day on a GPU, rehearsed: scripts/gpu_day from a bundle, by a user
of a bare Debian 12 that has nothing else and no network, on the emulated device.

--bundle names the archive of a bundle; without it one is made.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import bare_debian

MOST_ARCHIVE_BYTES = 64 << 20
USER = 1000
HOME = "home/lent"
# Runs in its own namespaces, then in the machine as the machine's user.
_ENTER = f"""
set -e
ip link set lo up
mount -t proc proc "$1/proc"
mkdir -p "$1/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
exec chroot --userspec={USER}:{USER} "$1" /usr/bin/env -i \\
  PATH=/usr/bin:/bin HOME=/{HOME} LC_ALL=C.UTF-8 bash -c "cd /{HOME} && $2"
"""
arguments: argparse.Namespace


def why_not() -> str:
    if os.geteuid() != 0:
        return "needs root, for a file system of its own"
    if not bare_debian.ARCHIVE.is_file():
        return f"no {bare_debian.ARCHIVE} here: run scripts/setup --package"
    return ""


class GpuDayTest(unittest.TestCase):
    def setUp(self) -> None:
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fineserve-debian-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        subprocess.run(
            ["tar", "-C", str(self.root), "-xf", str(bare_debian.ARCHIVE)],
            check=True,
        )
        self.home = self.root / HOME
        self.home.mkdir()
        self.bundle = arguments.bundle or self.make_bundle()
        shutil.copy(self.bundle, self.home / "bundle.tar.gz")
        shutil.chown(self.home, USER, USER)

    def make_bundle(self) -> pathlib.Path:
        folder = self.root / "fineserve-bundle"
        subprocess.run(
            [bare_debian.SOURCE / "scripts/bundle", "--output", folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return folder.with_name(folder.name + ".tar.gz")

    def in_the_machine(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--net", "--ipc", "--fork"),
                *("--kill-child", "bash", "-c", _ENTER, "bash"),
                *(str(self.root), command),
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def test_both_parts_end_with_reports_of_which_nothing_failed(self) -> None:
        self.assertLessEqual(
            pathlib.Path(self.bundle).stat().st_size, MOST_ARCHIVE_BYTES
        )
        self.assertEqual(self.in_the_machine("tar xf bundle.tar.gz").returncode, 0)
        for part in (1, 2):
            done = self.in_the_machine(
                f"fineserve-*/gpu_day run {part} out --device emulated"
            )
            print(done.stdout, flush=True)
            self.assertIn(f"part {part} complete", done.stdout, done.stderr)
        out = self.home / "out"
        files = sorted(file.name for file in out.iterdir())
        self.assertEqual(
            files, ["part-1.json", "part-1.md", "part-2.json", "part-2.md"]
        )
        for part in (1, 2):
            runs = json.loads((out / f"part-{part}.json").read_text())
            checks = [check for run in runs for check in run["checks"]]
            self.assertGreaterEqual(len(checks), 10)
            self.assertEqual(
                [(c["name"], c["reason"]) for c in checks if c["verdict"] == "failed"],
                [],
            )
        self.assertEqual(self.kept(out), files)

    def kept(self, out: pathlib.Path) -> list[str]:
        """Keeps the reports in a tree that contains only gpu_day."""
        tree = self.root / "tree"
        (tree / "scripts").mkdir(parents=True)
        gpu_day = shutil.copy(bare_debian.SOURCE / "scripts/gpu_day", tree / "scripts")
        subprocess.run([gpu_day, "keep", out], check=True, stdout=subprocess.DEVNULL)
        (folder,) = (tree / "bench/results").iterdir()
        return sorted(file.name for file in folder.iterdir())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=pathlib.Path)
    arguments, rest = parser.parse_known_args()
    if why := why_not():
        print(f"SKIP: {why}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
