"""Our packages on a bare Debian 12: what an operator does on the first day, an
upgrade under load, and the end.

--preset says whose build is packaged.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from typing import Any

import bare_debian
from ten_minutes import tutorial

HERE = pathlib.Path(__file__).parent
SOURCE = HERE.parent.parent
UNITS = ("fineserved@emulated", "fineserve-engines", "fineserve-proxy")
PATIENCE_S = 120
# Files that apt and dpkg leave behind, or that a running system writes.
_NOT_OURS = re.compile(
    r"^/(var/lib/(apt|dpkg|systemd)|var/cache|var/log/(apt|dpkg|journal|alternatives)"
    r"|tmp|run|var/tmp|root|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"
    r"|etc/ld.so.cache|debs)"
)
arguments: argparse.Namespace


class BareDebianTest(unittest.TestCase):
    """All tests share one machine and run in the order of their names."""

    machine: bare_debian.Machine
    before: set[str]  # its files without our packages

    @classmethod
    def setUpClass(cls) -> None:
        if why := bare_debian.why_not():
            print(f"SKIP: {why}")
            sys.exit(77)
        with tempfile.TemporaryDirectory() as made:
            for revision in (1, 2):
                if arguments.packages is None:
                    bare_debian.make_packages(
                        pathlib.Path(made) / str(revision),
                        arguments.preset,
                        revision,
                    )
            cls.machine = bare_debian.Machine()
            cls.addClassCleanup(cls.machine.close)
            shutil.copytree(
                arguments.packages or made, cls.machine.root / "debs"
            )
        cls.machine.fetch_dependencies(
            [
                f"/debs/1/{deb.name}"
                for deb in (cls.machine.root / "debs/1").glob("*.deb")
            ]
        )
        cls.machine.boot()

    def wait_for(self, what: str, command: str) -> None:
        """Waits until the command succeeds in the machine."""
        deadline = time.monotonic() + PATIENCE_S
        while (last := self.machine.run(command)).returncode != 0:
            if time.monotonic() > deadline:
                logs = self.machine.run("journalctl -b --no-pager | tail -n 60")
                self.fail(f"{what}: {last.stdout}{last.stderr}\n{logs.stdout}")
            time.sleep(0.5)

    def json_of(self, command: str) -> Any:
        return json.loads(self.machine.check(command))

    def curl(self, command: str) -> str:
        """Runs the command with this machine's curl, because the bare machine
        has none."""
        done = subprocess.run(
            self.machine.in_its_network(["sh", "-c", command]),
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_1_three_commands_make_two_models(self) -> None:
        commands = tutorial("From nothing to two models")
        self.assertLessEqual(len(commands), 5)
        type(self).before = self.machine.files()
        began = time.monotonic()
        for command in commands:
            self.machine.check(command.replace("./build/packages", "/debs/1"))
        self.wait_for(
            "two engines serve",
            "fsctl models --json | tr -d ' \\n' | "
            "grep -o '\"serves\":true' | wc -l | grep -qx 2",
        )
        took_s = time.monotonic() - began
        models, answer = map(self.curl, tutorial("A request"))
        self.assertEqual(
            ["chat", "code"], sorted(m["id"] for m in json.loads(models)["data"])
        )
        self.assertTrue(json.loads(answer)["choices"][0]["text"])
        # The time does not include the downloads, which were made before.
        print(f"{len(commands)} commands, {took_s:.0f} s from nothing to two models")

    def test_2_doctor_is_green(self) -> None:
        report = self.json_of("fsctl doctor --json")
        bad = [c for c in report["checks"] if c["result"] not in ("ok", "skipped")]
        self.assertEqual([], bad)
        for unit in UNITS:
            self.machine.check(f"systemctl is-active {unit}")
        for command in tutorial("Look around"):
            self.assertTrue(self.machine.check(command), command)

    def test_3_services_are_their_user_alone(self) -> None:
        self.assertEqual(
            ["fineserve"] * 5, [line.split()[0] for line in self.running()]
        )
        folder = self.machine.check("stat -c '%U %a' /run/fineserve")
        self.assertEqual("fineserve 700", folder.strip())

    def test_4_upgrade_under_load_answers_every_request(self) -> None:
        self.machine.check("echo '# mine' >>/etc/fineserve/fineserve.toml")
        engines = self.json_of("fsctl engines --json")
        slabs = self.json_of("fsctl slabs --json")
        load = subprocess.Popen(
            self.machine.in_its_network(
                [sys.executable, str(HERE / "load.py"), "chat", "code"]
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.assertEqual("started\n", load.stdout.readline())
        daemon = self.machine.check(f"systemctl show -P MainPID {UNITS[0]}")
        proxy = self.machine.check(f"systemctl show -P MainPID {UNITS[2]}")
        time.sleep(2)  # of load before, and after
        self.machine.check("apt-get install -qq /debs/2/*.deb")
        self.machine.check("apt-get install -qq --reinstall /debs/2/*.deb")
        time.sleep(2)
        result = json.loads(load.communicate("\n", timeout=180)[0])
        self.assertEqual({}, result["troubles"])
        self.assertGreater(result["answered"], 20)
        print(f"{result['answered']} requests, all answered")
        self.assertNotEqual(
            daemon, self.machine.check(f"systemctl show -P MainPID {UNITS[0]}")
        )
        self.assertNotEqual(
            proxy, self.machine.check(f"systemctl show -P MainPID {UNITS[2]}")
        )
        after = self.json_of("fsctl engines --json")
        self.assertEqual(
            [e["pids"] for e in engines["engines"]],
            [e["pids"] for e in after["engines"]],
            "engines went on",
        )
        self.assertEqual(
            slabs["daemon"]["epoch"],
            self.json_of("fsctl slabs --json")["daemon"]["epoch"],
            "same pool",
        )
        self.assertIn("# mine", self.machine.check("cat /etc/fineserve/fineserve.toml"))
        self.assertIn("-2", self.machine.check("dpkg-query -W -f '${Version}' fineserve"))

    def test_5_daemon_that_is_killed_is_followed_by_another(self) -> None:
        daemon = self.machine.check(f"systemctl show -P MainPID {UNITS[0]}")
        kill, doctor = tutorial("Break something")
        self.machine.check(kill)
        self.wait_for(
            "another daemon",
            f"pid=$(systemctl show -P MainPID {UNITS[0]}); "
            f'test "$pid" != 0 -a "$pid" != {daemon.strip()} && {doctor}',
        )

    def test_6_downgrade_is_an_upgrade(self) -> None:
        before = self.json_of("fsctl engines --json")
        self.machine.check("apt-get install -qq --allow-downgrades /debs/1/*.deb")
        self.wait_for("the former release serves", "fsctl doctor")
        after = self.json_of("fsctl engines --json")
        self.assertEqual(
            [e["pids"] for e in before["engines"]],
            [e["pids"] for e in after["engines"]],
            "engines went on",
        )

    def test_7_removal_leaves_the_engines(self) -> None:
        engines = self.json_of("fsctl engines --json")["engines"]
        fleet = tomllib.loads(self.machine.check("cat /etc/fineserve/fleet.toml"))
        said = self.machine.check("apt-get remove -qq 'fineserve*' 2>&1")
        for engine in engines:
            for pid in engine["pids"]:
                self.assertRegex(said, rf"serve on without it.*\b{pid}\b")
        self.assertEqual(
            ["fineserve tinyserve"] * len(engines), sorted(self.running())
        )
        for engine in fleet["engine"]:
            asked = {"model": engine["model"], "prompt": "three more words"}
            answer = self.curl(
                f"curl -sS {engine['url']}/v1/completions -d '{json.dumps(asked)}'"
            )
            self.assertTrue(json.loads(answer)["choices"][0]["text"])

    def test_8_purge_leaves_nothing(self) -> None:
        self.machine.check("apt-get purge -qq 'fineserve*'")
        self.assertEqual([], self.running())
        self.assertEqual("", self.machine.run("getent passwd fineserve").stdout)
        self.machine.check("apt-get autoremove -qq --purge")
        left = {
            path
            for path in self.machine.files() - self.before
            if not _NOT_OURS.match(path)
        }
        self.assertEqual([], sorted(left))

    def running(self) -> list[str]:
        """Our processes in the machine: "user name"."""
        listed = self.machine.check(
            "for p in /proc/[0-9]*; do "
            'echo "$(stat -c %U $p) $(cat $p/comm)"; done 2>/dev/null'
        )
        return [
            line
            for line in listed.splitlines()
            if re.search(r" (fineserve|tinyserve|fsctl)", line)
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release")
    parser.add_argument(
        "--packages",
        help="folder of 1/*.deb and 2/*.deb, to be taken instead",
    )
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
