"""Brings about each symptom of scripts/docs/runbook.md, here or in
test_agreement.py, and checks that the command there says what the runbook
says."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys

from fleet_site import FleetSite
from runbook import RUNBOOK, entries, pattern_of
from test_agreement import PARTS
from two_machines import TwoMachines, has_etcd

SOURCE = pathlib.Path(__file__).parent.parent.parent
EXAMPLE = SOURCE / "tools/deploy/examples/tinyserve.toml"
FLEET = "/etc/fineserve/fleet.toml"


class Runbook:
    def __init__(self, site: FleetSite, bin_: pathlib.Path) -> None:
        self.site = site
        self.entries = entries()
        self.seen: set[str] = set()
        self._environment = os.environ | site.environment | {
            "PATH": f"{bin_}:{site.environment['PATH']}"
        }

    def says(
        self,
        name: str,
        fleet: pathlib.Path | None = None,
        pid: int = 0,
        patience_s: float = 15,
    ) -> None:
        """Runs the entry's command and checks that it says what the entry
        says."""
        command, lines = self.entries[name]
        for written, here in (
            (FLEET, str(fleet)),
            ("localhost:8000", f"127.0.0.1:{self.site.port}"),
            ("localhost:8001", f"127.0.0.1:{self.site.admin_port}"),
            ("/tmp/other", str(self.site.folder / "other")),
            ("./fineserved", str(self.site.folder / "release")),
            ("PID", str(pid)),
        ):
            command = command.replace(written, here)

        def said() -> str:
            done = subprocess.run(
                ["sh", "-c", command],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            return done.stdout + done.stderr

        def all_said() -> bool:
            text = said()
            return all(pattern_of(line).search(text) for line in lines)

        try:
            # A change that a process has just made may take a moment to show.
            self.site.wait_for(name, all_said, patience_s)
        except AssertionError:
            raise AssertionError(
                f"{name}: `{command}` should say {lines}, but says:\n{said()}"
            ) from None
        self.seen.add(name)


def walk(runbook: Runbook) -> None:
    """Checks the symptoms that can follow one another on one machine."""
    site = runbook.site
    fleet = site.adapt(EXAMPLE)
    wrong = site.folder / "wrong.toml"
    runbook.says("no-daemon")
    runbook.says("pool-too-large")
    wrong.write_text(fleet.read_text().replace("slo_ttft_ms", "slo_tft_ms"))
    runbook.says("fleet-mistake", wrong)

    site.start_daemons(fleet)
    runbook.says("gpu-taken")
    site.start_proxy(fleet)
    runbook.says("engines-down")
    site.stop("fineserve-proxy")
    wrong.write_text(fleet.read_text().replace("/tinyserve", "/no-such-engine"))
    runbook.says("command-missing", wrong)

    site.serve(fleet)
    runbook.says("port-taken", fleet)
    runbook.says("unknown-model")
    runbook.says("without-shim", pid=os.getpid())
    runbook.says("too-late")
    serving = fleet.read_text()
    fleet.write_text(serving.replace("slo_ttft_ms", "slo_tft_ms"))
    runbook.says("apply-refused", fleet)
    fleet.write_text(serving)
    assert site.fsctl("drain", "chat").returncode == 0
    runbook.says("drained")
    assert site.fsctl("drain", "chat", "--undo").returncode == 0

    site.stop("fineserved", signal.SIGKILL)
    runbook.says("daemon-dead")
    runbook.says("whats-wrong")
    runbook.says("unscheduled")
    with site.paused("fsctl"):  # it would restart them
        site.start_daemons(fleet)
        runbook.says("orphans")


def quarantine(runbook: Runbook) -> None:
    site = runbook.site
    fleet = site.adapt(EXAMPLE)
    site.start_daemons(fleet)
    site.serve(fleet)
    engines = site.report("engines")["engines"]
    os.kill(engines[0]["pids"][0], signal.SIGKILL)
    runbook.says("quarantine-stuck")


def killed_programs(runbook: Runbook) -> None:
    site = runbook.site
    fleet = site.adapt(EXAMPLE)
    site.start_daemons(fleet)
    site.serve(fleet)
    engines = site.report("engines")["engines"]
    chat = next(e["pids"][0] for e in engines if e["name"] == "chat")
    os.kill(chat, signal.SIGSTOP)
    runbook.says("engine-hangs")
    os.kill(chat, signal.SIGCONT)
    other = site.folder / "other.toml"
    other.write_text(fleet.read_text())
    site.start(
        *("fineserve-proxy", "--fleet", str(other)),
        *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
    )
    runbook.says("two-fleets")
    site.stop("fineserve-proxy", signal.SIGKILL)
    runbook.says("proxy-dead")
    site.stop("fsctl", signal.SIGKILL)
    runbook.says("up-dead")
    site.start("fsctl", "up", str(fleet))
    # `fsctl up` ends the engines when the test ends, if it has adopted them by
    # then.
    site.wait_for(
        "fsctl up answers",
        lambda: "no fsctl up runs" not in site.fsctl("status").stdout,
    )


# A release that has the ABI which the pool needs, but never serves.
_BROKEN = """#!/bin/sh
case "$*" in *--version* | *--check-takeover*) exec {fineserved} "$@" ;; esac
echo "no such driver" >&2
exit 1
"""


def upgrades(runbook: Runbook) -> None:
    site = runbook.site
    release = site.folder / "release"
    fineserved = site.start_replaceable_daemon()
    _write_program(release, "#!/bin/sh\necho fineserved 9.9, ABI 9\n")
    runbook.says("upgrade-refused")
    _write_program(release, _BROKEN.format(fineserved=fineserved))
    runbook.says("upgrade-went-back")
    site.stop("fineserved", signal.SIGKILL)  # which keeps the daemon's pool
    runbook.says("supervisor-dead")
    slabs = site.report("slabs")
    os.kill(slabs["daemon"]["pid"], signal.SIGKILL)


def machines(two: TwoMachines, runbook: Runbook) -> None:
    two.start()
    two.a_stranger_knocks()
    # Machines report figures that change constantly only every half minute.
    runbook.says("strangers", patience_s=60)
    two.the_other_goes()
    runbook.says("machine-lost", patience_s=60)
    two.etcd_goes()
    runbook.says("no-majority", patience_s=60)


def _write_program(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    seen: set[str] = set()
    for scenario, more in (
        (walk, {}),
        (quarantine, {"EMUCUDA_NVML_PID_OFFSET": "1000"}),
        (killed_programs, {}),
        (upgrades, {}),
    ):
        site = FleetSite(arguments.bin)
        site.environment |= more
        try:
            runbook = Runbook(site, arguments.bin)
            scenario(runbook)
            seen |= runbook.seen
        finally:
            site.close()
    if has_etcd():
        two = TwoMachines(arguments.bin)
        try:
            runbook = Runbook(two.here, arguments.bin)
            machines(two, runbook)
            seen |= runbook.seen
        finally:
            two.close()
    else:
        print("etcd is not installed: the symptoms of several machines are left out")
        seen |= {"machine-lost", "no-majority", "strangers"}
    seen |= {outage.runbook for part in PARTS.values() for outage in part} - {""}
    headings = set(re.findall(r"^## (.*)$", RUNBOOK.read_text(), re.M))
    if headings != seen:
        print(f"not brought about: {', '.join(sorted(headings - seen))}")
        return 1
    print(f"{len(seen)} symptoms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
