"""Outages are made for real, and everything that an operator may ask is asked at
once: status, models, doctor, the page, /ready, metrics and Prometheus with our
alerts. All must say the same of it, status with since when, and all must be well
again after it. The outages of a part happen to one fleet, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from fleet_site import FleetSite, free_port
from runbook import entries, pattern_of
from two_machines import TwoMachines

SOURCE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = SOURCE / "tools/deploy/examples/tinyserve.toml"
RULES = SOURCE / "tools/monitoring/fineserve.rules.yml"
# A trouble's time may begin with the last sign of health, and be read late.
SLACK_S = 3.0
_ALERTS_OF_PRESENT = {
    "FineservedAway",
    "FineserveProxyAway",
    "FineserveUndecided",
    "FineserveEngineAway",
    "FineserveCertificateExpires",
    "FineserveSloBurnsFast",
    "FineservePlanTroubled",
}


@dataclasses.dataclass(frozen=True)
class Word:
    """The word of each source but status about a fleet; None: it is silent."""

    # By engine: whether it serves; None: it is not known.
    serves: tuple[tuple[str, bool | None], ...] | None = (
        ("chat", True),
        ("code", True),
    )
    drains: tuple[str, ...] = ()
    daemon_is_well: bool = True
    decides: bool | None = True
    is_ready: bool | None = True
    page_serves: tuple[tuple[str, bool], ...] | None = (("chat", True), ("code", True))
    # Those of _ALERTS_OF_PRESENT.
    alerts: frozenset[str] = frozenset()


WELL = Word()


def but(**changes: Any) -> Word:
    """`serves` changes the page, too."""
    if "alerts" in changes:
        changes["alerts"] = frozenset(changes["alerts"])
    if "serves" in changes and changes["serves"] is not None:
        engines = dict(WELL.serves) | changes["serves"]
        changes["serves"] = changes["page_serves"] = tuple(sorted(engines.items()))
    return dataclasses.replace(WELL, **changes)


@dataclasses.dataclass
class Status:
    troubles: list[dict[str, Any]]
    code: int

    def find(self, pattern: str) -> dict[str, Any] | None:
        for trouble in self.troubles:
            if trouble["wrong"] and re.search(pattern, trouble["what"]):
                return trouble
        return None


class Fleet(FleetSite):
    """A daemon under --supervise, `up`, a proxy, and Prometheus."""

    def __init__(self, bin_: pathlib.Path, tight: bool) -> None:
        super().__init__(bin_)
        if tight:
            self._mount_small_disk()
        self.metrics_port = free_port()
        self.fleet = self.adapt(EXAMPLE)
        self.text = self.fleet.read_text()
        self.gpu = ""
        self.start_daemon()
        (self.gpu,) = self.uuids()
        self.serve(self.fleet)
        self.prometheus = Prometheus(self)

    def _mount_small_disk(self) -> None:
        run = self.folder / "run"
        run.mkdir(mode=0o700)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "run", str(run)],
            check=True,
        )

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

    def port_of(self, engine: str) -> int:
        found = re.search(rf'name = "{engine}"\nmodel.*\nurl = ".*:(\d+)"', self.text)
        return int(found[1])

    def pid_of_program(self, program: str) -> int:
        return next(
            process.pid
            for process in self._running
            if pathlib.Path(process.args[0]).name == program
        )

    def daemon_pid(self) -> int:
        return json.loads(self.fsctl("slabs", "--json").stdout)["daemon"]["pid"]

    def status(self) -> Status:
        said = self.fsctl("status", "--json")
        return Status(json.loads(said.stdout)["troubles"], said.returncode)

    def word(self) -> Word:
        models = self.fsctl("models", "--json")
        engines = None
        if models.returncode == 0:
            engines = [
                engine
                for model in json.loads(models.stdout)["models"]
                for engine in model["engines"]
            ]
        checks = json.loads(self.fsctl("doctor", "--json").stdout)["checks"]
        page = _frame(self.admin_port)
        ready = _get(self.port, "/ready")
        metrics = _get(self.admin_port, "/metrics") or (0, "")
        decides = re.search(r"^fineserve_daemon_decides{.*} (\S+)", metrics[1], re.M)
        said = Word(
            None if engines is None else _flags(engines, "serves"),
            tuple(sorted(e["name"] for e in engines or [] if e["drains"])),
            not any(c["name"] == "daemon" and c["result"] == "FAIL" for c in checks),
            None if decides is None else decides[1] == "1",
            None if ready is None else ready[0] == 200,
            page
            and _flags([e for m in page["models"] for e in m["engines"]], "serves"),
            frozenset(self.prometheus.alerts() & _ALERTS_OF_PRESENT),
        )
        self._check_daemons_metrics(said)
        return said

    def _check_daemons_metrics(self, said: Word) -> None:
        """They come from where `fsctl models` has it."""
        metrics = _get(self.metrics_port, "/metrics")
        if metrics is None or said.serves is None:
            return
        for series, now in (
            ("serves", {e: is_so for e, is_so in said.serves if is_so is not None}),
            ("drains", {name: name in said.drains for name, _ in said.serves}),
        ):
            shown = re.findall(
                rf'^fineserve_engine_{series}{{engine="(\w+)".*}} (\d)',
                metrics[1],
                re.M,
            )
            if {name: value == "1" for name, value in shown} != now:
                raise NotYet(f"engine_{series}: {shown}, and models say {now}")

    def close(self) -> None:
        if hasattr(self, "prometheus"):
            self.prometheus.close()
        super().close()


class NotYet(Exception):
    """Two looks had a change between them."""


class Prometheus:
    """With our rules, which do not wait here before they fire."""

    def __init__(self, fleet: Fleet) -> None:
        self._folder = fleet.folder / "prometheus"
        self._folder.mkdir()
        self._port = free_port()
        rules = re.sub(r"\n *for: \w+", "", RULES.read_text())
        rules = re.sub(
            r"\b(\d+)([mh])\]",
            lambda m: f"{int(m[1]) * (60 if m[2] == 'h' else 1)}s]",
            rules,
        )
        (self._folder / "rules.yml").write_text(rules)
        self._process: subprocess.Popen[bytes] | None = None
        self.watch(fleet)

    def watch(self, fleet: Fleet) -> None:
        """From now on. A proxy that was started again has another port, and the
        former one's samples would count for five minutes."""
        self.close()
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        (self._folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 500ms, "
            "evaluation_interval: 250ms}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            "  - job_name: fineserved\n"
            f'    static_configs: [{{targets: ["127.0.0.1:{fleet.metrics_port}"]}}]\n'
            "  - job_name: fineserve-proxy\n"
            f'    static_configs: [{{targets: ["127.0.0.1:{fleet.admin_port}"]}}]\n'
        )
        with (self._folder / "prometheus.log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder}/prometheus.yml",
                    f"--storage.tsdb.path={self._folder}/data",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def alerts(self) -> set[str]:
        answer = _get(self._port, "/api/v1/alerts")
        if answer is None or answer[0] != 200:
            raise NotYet("Prometheus has not begun")
        alerts = json.loads(answer[1])["data"]["alerts"]
        return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _get(port: int, path: str) -> tuple[int, str] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _frame(port: int) -> dict[str, Any] | None:
    """The page's newest one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/frames")
        answer = connection.getresponse()
        while line := answer.readline().decode():
            if line.startswith("data: "):
                return json.loads(line[len("data: ") :])
        return None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _flags(engines: list[dict[str, Any]], flag: str) -> tuple[tuple[str, bool], ...]:
    return tuple(sorted((e["name"], e[flag]) for e in engines))


@dataclasses.dataclass
class Outage:
    name: str
    begin: Callable[[Fleet], Any]
    end: Callable[[Fleet, Any], None]
    says: str  # the trouble in status
    word: Word  # of all others, at the same moment
    runbook: str = ""  # its entry, if no other test compares that
    may_alert: frozenset[str] = frozenset()  # besides the word's
    # Whether status can know since when.
    has_time: bool = True
    # Whether all is not well again after it.
    stays: bool = False


def _stop(*pids: int) -> tuple[int, ...]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def _go_on(_: Fleet, pids: tuple[int, ...]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _nothing(_: Fleet, __: Any) -> None:
    pass


def _drain(fleet: Fleet) -> None:
    assert fleet.fsctl("drain", "chat").returncode == 0


def _undrain(fleet: Fleet, _: Any) -> None:
    assert fleet.fsctl("drain", "chat", "--undo").returncode == 0


def _background(work: Callable[[], None]) -> Callable[[], None]:
    """Repeats `work` until what it returns is called."""
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(0.2):
            with contextlib.suppress(OSError, http.client.HTTPException):
                work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        ends.set()
        thread.join()

    return end


def _end(_: Fleet, end: Callable[[], None]) -> None:
    end()


def _kill_again_and_again(fleet: Fleet) -> Callable[[], None]:
    port = str(fleet.port_of("chat"))

    def kill() -> None:
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"/tinyserve") and port.encode() in words:
                    os.kill(int(process.name), signal.SIGKILL)

    return _background(kill)


def _take_port(fleet: Fleet) -> socket.socket:
    """The engine's, as soon as it has lost it."""
    port = fleet.port_of("code")
    os.kill(fleet.pid_of("code"), signal.SIGKILL)
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    deadline = time.monotonic() + 60
    while True:
        try:
            taken.bind(("127.0.0.1", port))
            break
        except OSError:
            assert time.monotonic() < deadline
    taken.listen()
    return taken


def _close(_: Fleet, held: socket.socket) -> None:
    held.close()


def _post(port: int, path: str, body: dict[str, Any]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _let_it_err(fleet: Fleet) -> Callable[[], None]:
    """Every second answer is an error."""
    port = fleet.port_of("chat")
    _post(port, "/fault/error", {})
    end = _background(lambda: [fleet.ask("chat") for _ in range(4)])

    def mend() -> None:
        end()
        _post(port, "/fault/none", {})
        for _ in range(20):
            fleet.ask("chat")

    return mend


def _fill_pool(fleet: Fleet) -> Callable[[], None]:
    """Both engines get requests whose answers fill their KV."""

    def ask(model: str) -> None:
        body = {"model": model, "prompt": "x " * 900, "max_tokens": 3000}
        _post(fleet.port_of(model), "/v1/completions", body)

    askers = [
        _background(lambda model=model: ask(model))
        for model in ("chat", "code")
        for _ in range(24)
    ]

    def end() -> None:
        pids = _stop(*(fleet.pid_of(model) for model in ("chat", "code")))
        for pid in pids:  # `up` starts them again, and they run no request
            os.kill(pid, signal.SIGKILL)
        for one in askers:
            one()

    return end


def _miss_slo(fleet: Fleet) -> Callable[[], None]:
    body = {"model": "chat", "prompt": "x", "max_tokens": 1}
    url = f"http://127.0.0.1:{fleet.port}/v1/completions"

    def ask() -> None:
        request = urllib.request.Request(
            url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "x-slo-ttft-ms": "1"},
        )
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=60).read()

    return _background(lambda: [ask() for _ in range(10)])


ENGINES = [
    Outage(
        "an engine hangs",
        lambda fleet: _stop(fleet.pid_of("chat")),
        _go_on,
        r"engine chat .* does not answer /health .*thread \d+ is stopped",
        but(serves={"chat": False}, alerts={"FineserveEngineAway"}),
    ),
    Outage(
        "all engines hang",
        lambda fleet: _stop(fleet.pid_of("chat"), fleet.pid_of("code")),
        _go_on,
        r"engine code .* does not answer /health .*thread \d+ is stopped",
        but(
            serves={"chat": False, "code": False},
            alerts={"FineserveEngineAway"},
        ),
    ),
    Outage(
        "an engine is drained",
        _drain,
        _undrain,
        r"engine chat is drained",
        but(drains=("chat",)),
    ),
    Outage(
        "an engine dies again and again",
        _kill_again_and_again,
        _end,
        r"engine chat .* is (down|starting) for the \d+(st|nd|rd|th) time; .*signal 9",
        but(serves={"chat": False}, alerts={"FineserveEngineAway"}),
        runbook="engine-loops",
    ),
    Outage(
        "an engine's port is taken",
        _take_port,
        _close,
        r"engine code .*(in use|listens)",
        but(serves={"code": False}, alerts={"FineserveEngineAway"}),
    ),
    Outage(
        "the pool is exhausted",
        _fill_pool,
        _end,
        r"the pool of .* is exhausted",
        WELL,
        runbook="pool-exhausted",
    ),
    # The last minute's requests are remembered.
    Outage(
        "an engine errs",
        _let_it_err,
        _end,
        r"engine chat: .*status of 500",
        WELL,
        runbook="engine-errs",
        stays=True,
    ),
    Outage(
        "requests miss their SLO",
        _miss_slo,
        _end,
        r"model chat on .* misses its SLO",
        but(alerts={"FineserveSloBurnsFast"}),
        stays=True,
        runbook="slo-missed",
    ),
]


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


def _expired_proxy(fleet: Fleet) -> Any:
    """One of this fleet that ends TLS."""
    cert, key, request = (
        str(fleet.folder / f"tls.{end}") for end in ("pem", "key", "csr")
    )
    curve = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    for words in (
        ["req", "-new", "-newkey", *curve, "-nodes", "-subj", "/CN=localhost"]
        + ["-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-signkey", key, "-days", "-1", "-out", cert],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return fleet.start(
        *("fineserve-proxy", "--fleet", str(fleet.fleet)),
        *("--listen", "127.0.0.1:0", "--admin", f"127.0.0.1:{free_port()}"),
        *("--tls-cert", cert, "--tls-key", key),
    )


def _end_process(fleet: Fleet, process: Any) -> None:
    fleet.end(process, signal.SIGKILL)


def _kill_proxy(fleet: Fleet) -> None:
    fleet.stop("fineserve-proxy", signal.SIGKILL)


def _start_proxy(fleet: Fleet, _: Any) -> None:
    fleet.start_proxy(fleet.fleet)
    fleet.prometheus.watch(fleet)


def _kill_up(fleet: Fleet) -> None:
    fleet.stop("fsctl", signal.SIGKILL)


def _start_up(fleet: Fleet, _: Any) -> None:
    fleet.start("fsctl", "up", str(fleet.fleet))


def _fill_table(pid: int, left: int) -> tuple[int, tuple[int, int]]:
    """The process may open so many other files, or none."""

    def limit_of_now() -> int:
        time.sleep(0.1)
        used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
        free = (number for number in itertools.count() if number not in used)
        return next(itertools.islice(free, left, None))

    # Some connections of a moment ago are still to be closed.
    limit = min(limit_of_now() for _ in range(20)) if left else 3
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    return pid, before


def _empty_table(_: Fleet, filled: tuple[int, tuple[int, int]]) -> None:
    resource.prlimit(filled[0], resource.RLIMIT_NOFILE, filled[1])


def _fill_disk(fleet: Fleet) -> pathlib.Path:
    junk = fleet.folder / "run/junk"
    with junk.open("wb") as file:
        disk = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
    return junk


def _empty_disk(_: Fleet, junk: pathlib.Path) -> None:
    junk.unlink()


_WITHOUT_PROXY = dataclasses.replace(
    WELL,
    serves=(("chat", None), ("code", None)),
    is_ready=None,
    decides=None,
    page_serves=None,
    alerts=frozenset({"FineserveProxyAway"}),
)

PROGRAMS = [
    Outage(
        "the fleet file has a mistake",
        _break_file,
        _mend_file,
        r'unknown key "slo_tft_ms"',
        WELL,
    ),
    Outage(
        "the fleet file is gone",
        _remove_file,
        _mend_file,
        r"fleet.toml: cannot be read|cannot read .*fleet.toml|fleet.toml: No such",
        WELL,
    ),
    Outage("the disk is full",
        _fill_disk, _empty_disk, r"disk of .* is full", WELL, has_time=False,
        runbook="disk-full",
    ),
    Outage(
        "a proxy of another fleet",
        _second_proxy,
        _end_process,
        r"two fleets share one runtime folder",
        WELL,
    ),
    # It has been so for a day.
    Outage(
        "the certificate has expired",
        _expired_proxy,
        _end_process,
        r"certificate of fineserve-proxy \d+ has expired",
        WELL,
        has_time=False,
        runbook="certificate-expired",
    ),
    Outage(
        "the proxy hangs",
        lambda fleet: _stop(fleet.pid_of_program("fineserve-proxy")),
        _go_on,
        r"proxy.* does not answer.*: thread \d+ is stopped",
        _WITHOUT_PROXY,
    ),
    Outage(
        "the proxy's descriptor table is full",
        lambda fleet: _fill_table(fleet.pid_of_program("fineserve-proxy"), 0),
        _empty_table,
        r"proxy.* does not answer.*: its descriptor table is full",
        # It reaches no engine, either. The connection of Prometheus goes on.
        dataclasses.replace(
            _WITHOUT_PROXY,
            serves=(("chat", False), ("code", False)),
            alerts=frozenset({"FineserveEngineAway"}),
        ),
        # Unless a scrape has timed out, on a busy machine, and its connection
        # is gone.
        may_alert=frozenset({"FineserveProxyAway"}),
        runbook="descriptors-full",
        has_time=False,
    ),
    Outage(
        "fsctl up hangs",
        lambda fleet: _stop(fleet.pid_of_program("fsctl")),
        _go_on,
        r"up.* does not answer.*: thread \d+ is stopped",
        WELL,
    ),
    Outage(
        "the proxy is killed",
        _kill_proxy,
        _start_proxy,
        r"no fineserve-proxy runs for",
        _WITHOUT_PROXY,
    ),
    Outage(
        "fsctl up is killed",
        _kill_up,
        _start_up,
        r"no fsctl up runs for",
        WELL,
    ),
]


def _start_stray(fleet: Fleet) -> Any:
    """An engine that no daemon has, as none runs."""
    return fleet.start(
        *("fsctl", "run", "--no-daemon", "--kv-size", "32MiB", "--name", "stray", "--"),
        *(fleet.program("tinyserve"), "--model", "stray", "--port", "0"),
        *("--blocks", "512"),  # of 64 KiB
    )


_WITHOUT_DAEMON = but(
    serves=None,
    daemon_is_well=False,
    decides=False,
    alerts={"FineservedAway", "FineserveUndecided"},
)

DAEMON = [
    Outage(
        "the daemon hangs",
        lambda fleet: _stop(fleet.daemon_pid()),
        _go_on,
        r"daemon \d+ .* does not answer; .* is stopped by a signal",
        _WITHOUT_DAEMON,
    ),
    # A reserve is left (kReservedDescriptors). Links to proxies and engines go on.
    Outage(
        "the daemon's descriptor table is full",
        lambda fleet: _fill_table(fleet.daemon_pid(), 8),
        _empty_table,
        r"daemon \d+ .* does not answer; .*its descriptor table is full",
        but(serves=None, daemon_is_well=False),
        has_time=False,
    ),
    # Nothing mends the following ones while engines live in the pool.
    Outage(
        "the supervisor is killed",
        lambda fleet: fleet.stop("fineserved", signal.SIGKILL),
        _nothing,
        r"the supervisor of fineserved \d+ .* has ended",
        WELL,
        stays=True,
    ),
    Outage(
        "the daemon is killed, too",
        lambda fleet: os.kill(fleet.daemon_pid(), signal.SIGKILL),
        _nothing,
        r"daemon \d+ of GPU-.* is dead; engines go on without it",
        _WITHOUT_DAEMON,
        stays=True,
    ),
    Outage(
        "an engine starts without a daemon",
        _start_stray,
        _end_process,
        r"tinyserve \(pid \d+\) allocated .* of KV outside the pool: no fineserved ran",
        _WITHOUT_DAEMON,
        stays=True,
    ),
]

PARTS = {"engines": ENGINES, "programs": PROGRAMS, "daemon": DAEMON}


def agrees_with_runbook(fleet: Fleet, entry: str) -> bool:
    command, lines = entries()[entry]
    said = fleet.fsctl(*command.split()[1:]).stdout
    return all(pattern_of(line).search(said) for line in lines)


def check(fleet: Fleet, outage: Outage) -> None:
    began = time.monotonic()
    last: list[Any] = []
    state = outage.begin(fleet)

    def all_say() -> bool:
        last[:] = [fleet.status()]
        trouble = last[0].find(outage.says)
        if trouble is None or last[0].code != 1:
            return False
        if outage.has_time and trouble["since_s"] is None:
            return False
        if outage.runbook and not agrees_with_runbook(fleet, outage.runbook):
            return False
        with contextlib.suppress(NotYet):
            last.append(fleet.word())
        if len(last) != 2:
            return False
        alerts = last[1].alerts - outage.may_alert
        return dataclasses.replace(last[1], alerts=alerts) == outage.word

    try:
        fleet.wait_for(outage.name, all_say)
    except AssertionError:
        raise AssertionError(
            f"{outage.name}: {last}, not {outage.word}{fleet.logs()}"
        ) from None
    since = last[0].find(outage.says)["since_s"]
    lasts = time.monotonic() - began
    if outage.has_time and since > lasts + SLACK_S:
        raise AssertionError(f"{outage.name}: {lasts:.1f} s ago, says {last[0]}")
    print(f"{outage.name}: said within {lasts:.1f} s, since {since}", flush=True)
    outage.end(fleet, state)


def well(fleet: Fleet) -> bool:
    now = fleet.status()
    if now.code != 0 or any(t["wrong"] for t in now.troubles):
        return False
    with contextlib.suppress(NotYet):
        return fleet.word() == WELL
    return False


def walk(fleet: Fleet, outages: list[Outage]) -> None:
    strays: set[int] = set()  # that outlive those who start them
    try:
        fleet.wait_for("all is well", lambda: well(fleet))
        for outage in outages:
            with contextlib.suppress(KeyError, StopIteration, ValueError):
                strays |= {
                    fleet.daemon_pid(),
                    fleet.pid_of("chat"),
                    fleet.pid_of("code"),
                }
            check(fleet, outage)
            if outage.stays:
                continue
            try:
                fleet.wait_for(f"after: {outage.name}", lambda: well(fleet))
            except AssertionError:
                raise AssertionError(
                    f"after: {outage.name}: {fleet.status()}{fleet.logs()}"
                ) from None
    finally:
        fleet.close()
        for stray in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)


def machines(bin_: pathlib.Path) -> int:
    """`fsctl status` and `fsctl nodes` of one of two machines. Returns how many
    outages there were."""
    two = TwoMachines(bin_)
    outages = 0

    def said(pattern: str, states: dict[str, str]) -> None:
        nonlocal outages
        outages += 1
        began = time.monotonic()

        def all_say() -> bool:
            status = json.loads(two.here.fsctl("status", "--json").stdout)
            troubles = [
                t for t in status["troubles"] if re.search(pattern, t["what"])
            ]
            nodes = two.here.fsctl("nodes", "--json").stdout
            seen = json.loads(nodes)["machines"] if nodes else []
            now = {m["name"]: m["state"] for m in seen}
            lasts = time.monotonic() - began
            return (
                bool(troubles)
                and 0 <= (troubles[0]["since_s"] or -1) <= lasts + 2 * SLACK_S
                and all(now.get(name) == state for name, state in states.items())
            )

        two.here.wait_for(pattern, all_say)
        print(f"{pattern}: said within {time.monotonic() - began:.1f} s", flush=True)

    try:
        two.start()
        with two.etcd_hangs():
            said("etcd does not answer", {})
        two.here.wait_for("etcd is back", two.both_are_alive)
        with two.here.paused("fineserve-node"):
            said("fineserve-node does not run", {})
        two.here.wait_for("the node is back", two.both_are_alive)
        two.the_other_goes()
        said("machine there is (silent|lost)", {"here": "alive"})
        two.etcd_goes()
        said("etcd does not answer", {})
    finally:
        two.close()
    return outages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--part", choices=[*PARTS, "machines"], required=True)
    parser.add_argument("--tight", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    needed = "etcd" if arguments.part == "machines" else "prometheus"
    if shutil.which(needed) is None:
        print(f"SKIP: {needed} is not installed; run scripts/setup")
        return 77
    if arguments.part == "machines":
        print(f"{machines(arguments.bin)} outages")
        return 0
    # A full disk is one of its own.
    own = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    can_mount = subprocess.run([*own, "true"], capture_output=True).returncode == 0
    if arguments.part == "programs" and can_mount and not arguments.tight:
        os.execvp(own[0], [*own, sys.executable, *sys.argv, "--tight"])
    outages = PARTS[arguments.part]
    if not arguments.tight and arguments.part == "programs":
        print("no file system can be mounted here: the disk does not become full")
        outages = [o for o in outages if o.name != "the disk is full"]
    walk(Fleet(arguments.bin, arguments.tight), outages)
    print(f"{len(outages)} outages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
