"""The hardened units under the systemd that has booted a bare Debian 12: engines
serve, two with a view of the pool and one that holds whole slabs, while fineserved
is killed, restarted, upgraded and comes back. systemd's descriptor store gives
each the pool of the one before.

--preset says whose build is packaged. FINESERVE_DAEMON_KILLS sets another number
of kills than 20.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

import bare_debian

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools/lab/stage"))

import stage  # noqa: E402

UNIT = "fineserved@emulated"
KILLS = int(os.environ.get("FINESERVE_DAEMON_KILLS", "20"))
MODELS = ("view", "guarded", "whole")
# The pool is so small that what one model needs in its turn comes from the
# others.
POOL = """
slab = "4MiB"
planes = 2
"""
POOL_SIZE = "48MiB"
ENGINES = {
    "view": (True, "--page 64KiB"),
    "guarded": (True, "--page 32KiB --planes 2 --mode guarded"),
    "whole": (False, "--page 16KiB"),
}
# A release that answers queries as ours does but ends when it should serve.
BROKEN = """#!/bin/sh
case "$*" in *--version*|*--check-takeover*) exec /opt/good "$@";; esac
exit 1
"""
arguments: argparse.Namespace


def in_fleet(port: int, name: str) -> str:
    """Returns a model and its engine as an operator would write them; tinyserve
    computes from its KV."""
    view, more = ENGINES[name]
    command = (
        f"/usr/libexec/fineserve/tinyserve --model {name} --port {port} "
        f"--speed 20 {more}"
    )
    return stage.table(
        "[[model]]", name=name, slo_ttft_ms=5000, kv_token_bytes=65536
    ) + stage.table(
        "[[engine]]",
        name=name,
        model=name,
        url=f"http://127.0.0.1:{port}",
        view=view,
        command=command.split(),
    )


class RestartsTest(unittest.TestCase):
    """All tests share one machine and run in the order of their names."""

    machine: bare_debian.Machine
    load: subprocess.Popen[str]
    before: dict[str, Any]  # fsctl engines and slabs, before anything happened

    @classmethod
    def setUpClass(cls) -> None:
        if why := bare_debian.why_not():
            print(f"SKIP: {why}")
            sys.exit(77)
        cls.machine = bare_debian.Machine()
        cls.addClassCleanup(cls.machine.close)
        debs = cls.machine.root / "debs"
        if arguments.packages is None:
            with tempfile.TemporaryDirectory() as made:
                bare_debian.make_packages(
                    pathlib.Path(made), arguments.preset, revision=1
                )
                shutil.copytree(made, debs)
        else:
            shutil.copytree(arguments.packages, debs)
        cls.machine.fetch_dependencies(
            [f"/debs/{deb.name}" for deb in debs.glob("*.deb")]
        )
        cls.machine.boot()
        cls.machine.check("apt-get install -qq /debs/*.deb")
        fleet = cls.machine.root / "etc/fineserve/fleet.toml"
        fleet.write_text("".join(map(in_fleet, itertools.count(9001), ENGINES)))
        config = cls.machine.root / "etc/fineserve/fineserve.toml"
        text = config.read_text().replace('"auto"', f'"{POOL_SIZE}"')
        config.write_text(text + POOL)
        cls.machine.check(
            f"systemctl enable --now {UNIT} fineserve-engines fineserve-proxy"
        )

    def wait_for(self, what: str, holds: Any) -> None:
        if not stage.eventually(holds):
            logs = self.machine.run("journalctl -b --no-pager | tail -n 60")
            self.fail(f"{what}\n{logs.stdout}")

    def fsctl(self, command: str) -> Any:
        """Returns the JSON output of fsctl; None if it fails."""
        done = self.machine.run(f"fsctl {command} --json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def state(self) -> dict[str, Any]:
        slabs, engines = self.fsctl("slabs"), self.fsctl("engines")
        if slabs is None or engines is None:
            return {}
        return {
            "daemon": slabs["daemon"],
            "counters": slabs["counters"],
            "states": {
                name: state["slabs"] for name, state in slabs["states"].items()
            },
            "pids": {e["name"]: e["pids"] for e in engines["engines"]},
            "slabs": {e["name"]: e["slabs"] for e in engines["engines"]},
        }

    def expect_taken_over(self, before: dict[str, Any]) -> None:
        """Waits until another daemon serves and slabs move again. Checks that
        it has the pool, the engines and the slabs of `before`."""
        now: dict[str, Any] = {}

        def moves_on() -> bool:
            nonlocal now
            now = self.state() or now
            return (
                bool(now)
                and now["daemon"]["pid"] != before["daemon"]["pid"]
                and now["counters"]["slabs_returned"]
                > before["counters"]["slabs_returned"] + 1
            )

        self.wait_for("another daemon serves, and slabs move", moves_on)
        self.assertEqual(before["daemon"]["epoch"], now["daemon"]["epoch"])
        self.assertEqual(before["daemon"]["number"] + 1, now["daemon"]["number"])
        self.assertEqual(self.before["pids"], now["pids"], "engines went on")
        self.assertEqual(
            self.before["slabs"]["whole"], now["slabs"]["whole"], "whole slabs"
        )
        self.assertEqual(
            sum(self.before["states"].values()), sum(now["states"].values())
        )
        self.assertEqual(0, now["counters"]["slabs_quarantined"])
        self.assertEqual(0, now["counters"]["engines_died"])
        # systemd keeps the pool's descriptors.
        kept = self.machine.check(f"systemctl show -P NFileDescriptorStore {UNIT}")
        self.assertGreater(int(kept), sum(now["states"].values()))

    def returned(self) -> int:
        state = self.state()
        return state["counters"]["slabs_returned"] if state else 0

    def serving(self) -> int:
        models = self.fsctl("models") or {"models": []}
        return sum(e["serves"] for m in models["models"] for e in m["engines"])

    def test_1_all_serve(self) -> None:
        self.wait_for("three engines serve", lambda: self.serving() == len(MODELS))
        words = [*"--clients 12 --words 300 --tokens 40 --wave 1".split(), *MODELS]
        type(self).load = subprocess.Popen(
            self.machine.in_its_network(
                [sys.executable, str(HERE / "load.py"), *words]
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addClassCleanup(self.load.kill)
        self.assertEqual("started\n", self.load.stdout.readline())
        self.wait_for("slabs move", lambda: self.returned() > 4)
        type(self).before = self.state()
        self.assertEqual(set(MODELS), set(self.before["pids"]))

    def test_2_killed(self) -> None:
        silent_ms = []
        for _ in range(KILLS):
            before = self.state()
            daemon = self.machine.check(f"systemctl show -P MainPID {UNIT}")
            began = time.monotonic()
            self.machine.check(f"kill -9 {daemon}")
            self.wait_for(
                "another daemon answers",
                lambda: (self.fsctl("slabs") or before)["daemon"]["pid"]
                != before["daemon"]["pid"],
            )
            silent_ms.append((time.monotonic() - began) * 1000)
            self.expect_taken_over(before)
        silent_ms.sort()
        print(
            f"{KILLS} kills: another daemon answered after "
            f"{silent_ms[len(silent_ms) // 2]:.0f} ms (most {silent_ms[-1]:.0f}), "
            "100 of them systemd's RestartSec"
        )

    def test_3_restarted(self) -> None:
        before = self.state()
        self.machine.check(f"systemctl restart {UNIT}")
        self.expect_taken_over(before)

    def test_4_upgraded_and_back(self) -> None:
        self.machine.check(
            "install -d -m 0700 /releases; "
            "cp /usr/bin/fineserved /releases/good; "
            "cp /usr/bin/fineserved /opt/good"
        )
        before = self.state()
        done = self.machine.run("fsctl upgrade --json --binary /releases/good")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual("upgraded", json.loads(done.stdout)["outcome"])
        self.expect_taken_over(before)
        broken = self.machine.root / "releases/broken"
        broken.write_text(BROKEN)
        broken.chmod(0o755)
        before = self.state()
        done = self.machine.run(
            "fsctl upgrade --json --timeout 3 --binary /releases/broken"
        )
        self.assertEqual(4, done.returncode, done.stdout + done.stderr)
        self.assertEqual("went back", json.loads(done.stdout)["outcome"])
        self.expect_taken_over(before)
        self.machine.check("apt-get install -qq --reinstall /debs/*.deb")

    def test_5_nothing_was_lost(self) -> None:
        result = json.loads(self.load.communicate("\n", timeout=180)[0])
        self.assertEqual({}, result["troubles"])
        self.assertGreater(result["answered"], 100)
        print(f"{result['answered']} requests, all answered, and rightly")
        self.assertEqual(self.before["pids"], self.state()["pids"])
        self.machine.check("systemctl stop fineserve-engines")
        total = sum(self.before["states"].values())
        self.wait_for(
            "all slabs are free",
            lambda: (self.state() or self.before)["states"].get("free") == total,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release")
    parser.add_argument("--packages", help="folder of *.deb, to be taken instead")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2, failfast=True)
