"""Outages are made for real, and everything that an operator may ask is asked at
once: status, models, doctor, /ready, the metrics that alerts are made of. All must
say the same of it, status with since when, and all must be well again after
it. The same fleet on the emulated GPU serves all outages, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from fleet_site import FleetSite, free_port

SOURCE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = SOURCE / "tools/deploy/examples/tinyserve.toml"
# A trouble's time may begin with the last sign of health, and be read late.
SLACK_S = 3.0


@dataclasses.dataclass
class Answers:
    """What was said at one moment."""

    troubles: list[dict[str, Any]]
    status_code: int
    serves: dict[str, bool] | None  # by engine; None: fsctl models fails
    drains: dict[str, bool]
    daemon_is_well: bool  # says doctor
    ready: int | None  # HTTP status; None: no connection
    metrics: str  # the pages of daemon and proxy; one that is silent adds nothing

    def trouble(self, pattern: str) -> dict[str, Any] | None:
        for trouble in self.troubles:
            if re.search(pattern, trouble["what"]):
                return trouble
        return None

    def value(self, series: str) -> float | None:
        found = re.search(rf"^{series} (\S+)$", self.metrics, re.M)
        return float(found[1]) if found else None


class Fleet(FleetSite):
    """A daemon under --supervise, `up`, and a proxy."""

    def __init__(self, bin_: pathlib.Path) -> None:
        super().__init__(bin_)
        self.metrics_port = free_port()
        self.fleet = self.adapt(EXAMPLE)
        self.text = self.fleet.read_text()
        self.start_daemon()
        self.serve(self.fleet)

    def start_daemon(self) -> None:
        self.start(
            *("fineserved", "--gpu", "emulated:0", "--pool", "64MiB"),
            *("--slab", "2MiB", "--fleet", str(self.fleet), "--supervise"),
            *("--metrics", f"127.0.0.1:{self.metrics_port}"),
        )
        self.wait_for("fineserved serves", lambda: len(self.uuids()) == 1)

    def pid_of(self, engine: str) -> int:
        engines = json.loads(self.fsctl("engines", "--json").stdout)["engines"]
        return next(e["pids"][0] for e in engines if e["name"] == engine)

    def pid_of_program(self, program: str) -> int:
        return next(
            process.pid
            for process in self._running
            if pathlib.Path(process.args[0]).name == program
        )

    def daemon_pid(self) -> int:
        return json.loads(self.fsctl("slabs", "--json").stdout)["daemon"]["pid"]

    def _page(self, port: int, path: str) -> tuple[int | None, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None, ""
        finally:
            connection.close()

    def answers(self) -> Answers:
        status = self.fsctl("status", "--json")
        models = self.fsctl("models", "--json")
        doctor = self.fsctl("doctor", "--json")
        engines = None
        if models.returncode == 0:
            engines = [
                engine
                for model in json.loads(models.stdout)["models"]
                for engine in model["engines"]
            ]
        return Answers(
            [t for t in json.loads(status.stdout)["troubles"] if t["wrong"]],
            status.returncode,
            None if engines is None else {e["name"]: e["serves"] for e in engines},
            {e["name"]: e["drains"] for e in engines or []},
            not any(
                check["name"] == "daemon" and check["result"] == "FAIL"
                for check in json.loads(doctor.stdout)["checks"]
            ),
            self._page(self.port, "/ready")[0],
            self._page(self.metrics_port, "/metrics")[1]
            + self._page(self.admin_port, "/metrics")[1],
        )


@dataclasses.dataclass
class Outage:
    name: str
    begin: Callable[[Fleet], Any]
    end: Callable[[Fleet, Any], None]
    says: str  # the trouble in status
    agrees: Callable[[Answers], bool]  # all others, at the same moment
    # Whether status has to know since when.
    has_time: bool = True
    # Whether all is not well again after it.
    stays: bool = False


def _kill(pid: int, how: signal.Signals) -> None:
    os.kill(pid, how)


def _stop(*pids: int) -> tuple[int, ...]:
    for pid in pids:
        _kill(pid, signal.SIGSTOP)
    return pids


def _go_on(_: Fleet, pids: tuple[int, ...]) -> None:
    for pid in pids:
        _kill(pid, signal.SIGCONT)


def _drain(fleet: Fleet) -> None:
    assert fleet.fsctl("drain", "chat").returncode == 0


def _undrain(fleet: Fleet, _: Any) -> None:
    assert fleet.fsctl("drain", "chat", "--undo").returncode == 0


def _break_file(fleet: Fleet) -> None:
    fleet.fleet.write_text(fleet.text.replace("slo_ttft_ms", "slo_tft_ms"))


def _remove_file(fleet: Fleet) -> None:
    fleet.fleet.unlink()


def _mend_file(fleet: Fleet, _: Any) -> None:
    fleet.fleet.write_text(fleet.text)


def _second_proxy(fleet: Fleet) -> Any:
    other = fleet.folder / "other.toml"
    other.write_text(fleet.text)
    return fleet.start(
        *("fineserve-proxy", "--fleet", str(other)),
        *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
    )


def _end_process(_: Fleet, process: Any) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def _kill_proxy(fleet: Fleet) -> None:
    fleet.stop("fineserve-proxy", signal.SIGKILL)


def _start_proxy(fleet: Fleet, _: Any) -> None:
    fleet.start_proxy(fleet.fleet)


def _kill_up(fleet: Fleet) -> None:
    fleet.stop("fsctl", signal.SIGKILL)


def _start_up(fleet: Fleet, _: Any) -> None:
    fleet.start("fsctl", "up", str(fleet.fleet))


def _kill_supervisor(fleet: Fleet) -> None:
    fleet.stop("fineserved", signal.SIGKILL)


def _serve(a: Answers, **engines: bool) -> bool:
    serves = {"chat": True, "code": True} | engines
    return a.daemon_is_well and a.serves == serves


OUTAGES = [
    Outage(
        "an engine hangs",
        lambda fleet: _stop(fleet.pid_of("chat")),
        _go_on,
        r"engine chat .* does not answer /health .*thread \d+ is stopped",
        lambda a: _serve(a, chat=False)
        and a.ready == 200
        and a.value('fineserve_engine_serves{engine="chat",model="chat"}') == 0
        and a.value('fineserve_engine_serves{engine="code",model="code"}') == 1,
    ),
    Outage(
        "all engines hang",
        lambda fleet: _stop(fleet.pid_of("chat"), fleet.pid_of("code")),
        _go_on,
        r"engine code .* does not answer /health .*thread \d+ is stopped",
        lambda a: _serve(a, chat=False, code=False)
        and a.trouble(r"engine chat .* does not answer /health") is not None
        and a.value('fineserve_engine_serves{engine="code",model="code"}') == 0,
    ),
    Outage(
        "an engine is drained",
        _drain,
        _undrain,
        r"engine chat is drained",
        lambda a: _serve(a)
        and a.drains == {"chat": True, "code": False}
        and a.ready == 200
        and a.value('fineserve_engine_drains{engine="chat",model="chat"}') == 1,
    ),
    Outage(
        "the fleet file has a mistake",
        _break_file,
        _mend_file,
        r'unknown key "slo_tft_ms"',
        lambda a: _serve(a) and a.ready == 200,
    ),
    Outage(
        "the fleet file is gone",
        _remove_file,
        _mend_file,
        r"fleet.toml: cannot be read|cannot read .*fleet.toml|fleet.toml: No such",
        lambda a: _serve(a) and a.ready == 200,
        has_time=False,
    ),
    Outage(
        "the daemon hangs",
        lambda fleet: _stop(fleet.daemon_pid()),
        _go_on,
        r"fineserve-proxy \d+ has no daemon for",
        lambda a: a.serves is None
        and not a.daemon_is_well
        and a.trouble(r"daemon \d+ .* does not answer; .* is stopped by a signal")
        is not None
        and a.ready == 200  # it fails open
        and a.value('fineserve_daemon_decides{gpu=""}') == 0,
    ),
    Outage(
        "a proxy of another fleet",
        _second_proxy,
        _end_process,
        r"two fleets share one runtime folder",
        lambda a: _serve(a) and a.ready == 200,
        has_time=False,
    ),
    Outage(
        "the proxy hangs",
        lambda fleet: _stop(fleet.pid_of_program("fineserve-proxy")),
        _go_on,
        r"proxy.* does not answer",
        lambda a: a.ready is None,
        has_time=False,
    ),
    Outage(
        "fsctl up hangs",
        lambda fleet: _stop(fleet.pid_of_program("fsctl")),
        _go_on,
        r"up.* does not answer",
        lambda a: _serve(a) and a.ready == 200,
        has_time=False,
    ),
    Outage(
        "the proxy is killed",
        _kill_proxy,
        _start_proxy,
        r"no fineserve-proxy runs for",
        lambda a: a.ready is None,
        has_time=False,
    ),
    Outage(
        "fsctl up is killed",
        _kill_up,
        _start_up,
        r"no fsctl up runs for",
        lambda a: _serve(a) and a.ready == 200,
        has_time=False,
    ),
    # The last two: nothing mends them while engines live in the pool.
    Outage(
        "the supervisor is killed",
        _kill_supervisor,
        lambda fleet, _: None,
        r"the supervisor of fineserved \d+ .* has ended",
        lambda a: _serve(a) and a.ready == 200,
        stays=True,
    ),
    Outage(
        "the daemon is killed, too",
        lambda fleet: _kill(fleet.daemon_pid(), signal.SIGKILL),
        lambda fleet, _: None,
        r"daemon \d+ of GPU-.* is dead; engines go on without it",
        lambda a: a.serves is None
        and not a.daemon_is_well
        and a.ready == 200
        and a.trouble(r"fineserve-proxy \d+ has no daemon for") is not None
        and a.value('fineserve_daemon_decides{gpu=""}') == 0,
        has_time=False,
        stays=True,
    ),
]


def check(fleet: Fleet, outage: Outage) -> None:
    began = time.monotonic()
    last: list[Answers] = []
    state = outage.begin(fleet)

    def all_say() -> bool:
        last[:] = [fleet.answers()]
        trouble = last[0].trouble(outage.says)
        return (
            trouble is not None
            and last[0].status_code == 1
            and outage.agrees(last[0])
        )

    try:
        fleet.wait_for(outage.name, all_say)
    except AssertionError:
        raise AssertionError(f"{outage.name}: {last[0]}") from None
    trouble = last[0].trouble(outage.says)
    since = trouble["since_s"]
    lasts = time.monotonic() - began
    if outage.has_time and (since is None or since > lasts + SLACK_S):
        raise AssertionError(f"{outage.name}: {lasts:.1f} s ago, says {trouble}")
    print(f"{outage.name}: said within {lasts:.1f} s, since {since}", flush=True)
    outage.end(fleet, state)


def well(fleet: Fleet) -> bool:
    now = fleet.answers()
    return not now.troubles and now.status_code == 0 and _serve(now) and now.ready == 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    fleet = Fleet(parser.parse_args().bin)
    strays: set[int] = set()  # that outlive those who start them
    try:
        fleet.wait_for("all is well", lambda: well(fleet))
        for outage in OUTAGES:
            strays |= {fleet.daemon_pid(), fleet.pid_of("chat"), fleet.pid_of("code")}
            check(fleet, outage)
            if outage.stays:
                continue
            try:
                fleet.wait_for(f"after: {outage.name}", lambda: well(fleet))
            except AssertionError:
                raise AssertionError(
                    f"after: {outage.name}: {fleet.answers()}"
                ) from None
    finally:
        fleet.close()
        for stray in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)
    print(f"{len(OUTAGES)} outages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
