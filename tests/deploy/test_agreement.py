"""Causes real outages and asks every source of an operator at once: status,
models, doctor, the page, /ready, metrics and Prometheus with our alerts. All
sources must agree about the outage, status must also say since when, and all
must be well again afterwards. The outages of a part happen to one fleet, one
after the other. Each engine ends in only one of them, because an engine that
ends again within a minute counts as unwell since the first time."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import fcntl
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
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fleet_site import FleetSite
from runbook import entries, pattern_of
from stage import free_port, http_answer
from two_machines import TwoMachines

SOURCE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = SOURCE / "tools/deploy/examples/tinyserve.toml"
RULES = SOURCE / "tools/monitoring/fineserve.rules.yml"
# The time of a trouble may differ by this much from that of its first sign. A
# program that waits for a processor sees and gives signs later: see
# Fleet.waited.
SLACK_S = 1.0
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
    """What each source except status says about a fleet. None: the source is
    silent."""

    # Whether each engine serves, by its name. None: it is not known.
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


CHAT_AWAY = but(serves={"chat": False}, alerts={"FineserveEngineAway"})


@dataclasses.dataclass
class Status:
    troubles: list[dict[str, Any]]
    code: int

    def find(self, pattern: str) -> dict[str, Any] | None:
        for trouble in self.troubles:
            if trouble["wrong"] and re.search(pattern, trouble["what"]):
                return trouble
        return None


def waited(*marks: str) -> dict[str, float]:
    """Returns for how long each thread of some programs was ready to run but
    waited for a processor, in seconds. On a busy machine these waits delay a
    sign; they bound the delay. `marks`: values of EMUCUDA_DIR in the programs'
    environment."""
    words = [f"EMUCUDA_DIR={mark}".encode() for mark in marks]
    so_far = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            environment = (process / "environ").read_bytes().split(b"\0")
            if not any(word in environment for word in words):
                continue
            for thread in (process / "task").iterdir():
                ns = (thread / "schedstat").read_text().split()[1]
                so_far[thread.name] = int(ns) * 1e-9
    return so_far


class Fleet(FleetSite):
    """A fleet of a daemon under --supervise, `fsctl up`, a proxy and
    Prometheus."""

    def __init__(
        self, bin_: pathlib.Path, tight: bool, names: NameServer | None = None
    ) -> None:
        super().__init__(bin_)
        if tight:
            self._mount_small_disk()
        self.names = names
        self.metrics_port = free_port()
        self.fleet = self.adapt(EXAMPLE)
        if names:
            host = f"//chat.{NameServer.DOMAIN}:"
            text = self.fleet.read_text().replace("//127.0.0.1:", host, 1)
            self.fleet.write_text(text)
        self.text = self.fleet.read_text()
        self.gpu = ""
        self.start_daemon()
        (self.gpu,) = self.uuids()
        self.serve(self.fleet)
        # The wall-clock times between which the first sign of the present
        # outage came.
        self.sign = (0.0, 0.0)
        self.prometheus = Prometheus(self)

    @contextlib.contextmanager
    def first_sign(self) -> Iterator[None]:
        """Notes that the first sign comes in this context; for outages whose
        `begin` does more."""
        before = time.time()
        yield
        self.sign = (before, time.time())

    def waited(self) -> dict[str, float]:
        return waited(self.environment["EMUCUDA_DIR"])

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
        engines = self.report("engines")["engines"]
        return next(e["pids"][0] for e in engines if e["name"] == engine)

    def port_of(self, engine: str) -> int:
        found = re.search(rf'name = "{engine}"\nmodel.*\nurl = ".*:(\d+)"', self.text)
        return int(found[1])

    def pid_of_program(self, program: str) -> int:
        return self.named(program)[0].pid

    def daemon_pid(self) -> int:
        return self.report("slabs")["daemon"]["pid"]

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
        """Checks that the daemon's metrics say the same as `fsctl models`."""
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


class NameServer:
    """A name server at the usual port, for clients in this process's own
    network."""

    DOMAIN = "fleet.test"

    def __init__(self) -> None:
        self.answer = "127.0.0.1"  # or "no such name"; "": it is silent
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if self.answer:
                self._socket.sendto(self._reply(query), client)

    def _reply(self, query: bytes) -> bytes:
        """Replies as RFC 1035 says. The names have no records of IPv6
        addresses."""
        end = query.index(b"\0", 12) + 5
        is_a = query[end - 4 : end - 2] == b"\0\x01"
        known = self.answer != "no such name"
        records = 1 if known and is_a else 0
        flags = 0x8180 if known else 0x8183
        reply = query[:2] + struct.pack(">5H", flags, 1, records, 0, 0)
        reply += query[12:end]
        if records:
            reply += struct.pack(">3HIH", 0xC00C, 1, 1, 0, 4)
            reply += socket.inet_aton(self.answer)
        return reply


class NotYet(Exception):
    """Raised if the sources cannot be compared yet."""


class Prometheus:
    """Runs Prometheus with our rules, without the time that they usually wait
    before they fire."""

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

    def watch(self, fleet: Fleet, *more_proxies: int) -> None:
        """Starts Prometheus on the fleet's present ports, without earlier
        samples. A restarted proxy has another port, and samples of the former
        port would count for five minutes."""
        self.close()
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        proxies = [f"127.0.0.1:{port}" for port in (fleet.admin_port, *more_proxies)]
        (self._folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 500ms, "
            "evaluation_interval: 250ms}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            "  - job_name: fineserved\n"
            f'    static_configs: [{{targets: ["127.0.0.1:{fleet.metrics_port}"]}}]\n'
            "  - job_name: fineserve-proxy\n"
            f"    static_configs: [{{targets: {proxies}}}]\n"
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
    try:
        return http_answer(port, path, timeout=3)
    except (OSError, http.client.HTTPException):
        return None


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
    # How much more than SLACK_S the time in status may be off; design note 0041
    # has the reason.
    more_slack_s: float = 0
    # Returns why the outage cannot be caused here; empty if it can.
    cannot: Callable[[], str] = lambda: ""
    # Whether something remains wrong after the outage.
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


def _nothing_begins(_: Fleet) -> None:
    pass


def _drain(fleet: Fleet) -> None:
    assert fleet.fsctl("drain", "chat").returncode == 0


def _undrain(fleet: Fleet, _: Any) -> None:
    assert fleet.fsctl("drain", "chat", "--undo").returncode == 0


def _background(work: Callable[[], None]) -> Callable[[], None]:
    """Repeats `work` in a thread until the returned function is called."""
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


def _processes_of(fleet: Fleet, engine: str) -> Iterator[int]:
    port = str(fleet.port_of(engine)).encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"/tinyserve") and port in words:
                yield int(process.name)


def _kill_again_and_again(fleet: Fleet) -> Callable[[], None]:
    def kill() -> None:
        for pid in _processes_of(fleet, "chat"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    with fleet.first_sign():
        kill()
    return _background(kill)


def _take_port(fleet: Fleet) -> socket.socket:
    """Kills the engine and takes its port as soon as the port is free."""
    port = fleet.port_of("code")
    pid = fleet.pid_of("code")
    with fleet.first_sign():
        os.kill(pid, signal.SIGKILL)
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


def _let_it_err(fleet: Fleet) -> Callable[[], None]:
    """Makes every second answer of the engine an error."""
    port = fleet.port_of("chat")
    http_answer(port, "/fault/error", {})
    with fleet.first_sign():
        fleet.ask("chat")
        fleet.ask("chat")
    end = _background(lambda: [fleet.ask("chat") for _ in range(4)])

    def mend() -> None:
        end()
        http_answer(port, "/fault/none", {})
        for _ in range(20):
            fleet.ask("chat")

    return mend


def _fill_pool(fleet: Fleet) -> Callable[[], None]:
    """Sends both engines requests whose answers fill their KV."""

    def ask(model: str) -> None:
        body = {"model": model, "prompt": "x " * 900, "max_tokens": 3000}
        http_answer(fleet.port_of(model), "/v1/completions", body)

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

    def ask() -> None:
        with contextlib.suppress(OSError):
            http_answer(fleet.port, "/v1/completions", body, {"x-slo-ttft-ms": "1"})

    return _background(lambda: [ask() for _ in range(10)])


class Cgroup:
    """A cgroup of this test below the one in which it runs, in the first
    hierarchy that has one of `files`."""

    def __init__(self, *files: str) -> None:
        own = dict(
            line.split(":")[1:]
            for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        )
        self.folder: pathlib.Path | None = None
        self.cannot = f"no cgroup with {' or '.join(files)} can be made here"
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            mount, system = (part.split() for part in line.split(" - "))
            if system[0] not in ("cgroup", "cgroup2"):
                continue
            for controllers, path in own.items():
                v2 = system[0] == "cgroup2" and not controllers
                v1 = set(controllers.split(",")) & set(system[2].split(","))
                if v2 or (system[0] == "cgroup" and controllers and v1):
                    below = os.path.relpath(path, mount[3])
                    self._try(pathlib.Path(mount[4]) / below, files)
            if self.folder:
                return

    def _try(self, parent: pathlib.Path, files: tuple[str, ...]) -> None:
        folder = parent / f"fineserve-agreement-{os.getpid()}-{files[0]}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            for file in files:
                if os.access(folder / file, os.W_OK):
                    self.folder, self.cannot = folder, ""
                    return
            folder.rmdir()

    def write(self, file: str, value: Any) -> None:
        (self.folder / file).write_text(str(value))

    def remove(self) -> None:
        """Removes the cgroup once its processes have ended."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def _can(*files: str) -> Callable[[], str]:
    def cannot() -> str:
        tried = Cgroup(*files)
        if tried.folder:
            tried.remove()
        return tried.cannot

    return cannot


def _freeze(fleet: Fleet) -> tuple[Cgroup, int]:
    cgroup = Cgroup("cgroup.freeze")
    pid = fleet.pid_of("chat")
    cgroup.write("cgroup.procs", pid)
    with fleet.first_sign():
        cgroup.write("cgroup.freeze", 1)
    return cgroup, pid


def _thaw(_: Fleet, frozen: tuple[Cgroup, int]) -> None:
    cgroup, pid = frozen
    cgroup.write("cgroup.freeze", 0)
    (cgroup.folder.parent / "cgroup.procs").write_text(str(pid))
    cgroup.remove()


def _take_memory(fleet: Fleet) -> Callable[[], None]:
    """Makes the kernel kill the engine: the requests sent to it take more
    memory than its cgroup has."""
    cgroup = Cgroup("memory.max", "memory.limit_in_bytes")
    is_v2 = (cgroup.folder / "memory.max").exists()
    cgroup.write("memory.max" if is_v2 else "memory.limit_in_bytes", 16 << 20)
    body = {"model": "chat", "prompt": "x" * (48 << 20), "max_tokens": 1}
    words = json.dumps(body)

    def send() -> None:
        for pid in _processes_of(fleet, "chat"):
            cgroup.write("cgroup.procs", pid)
        connection = http.client.HTTPConnection(
            "127.0.0.1", fleet.port_of("chat"), timeout=60
        )
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", words)
            connection.getresponse()

    with fleet.first_sign(), contextlib.suppress(OSError, http.client.HTTPException):
        send()
    end = _background(send)

    def mend() -> None:
        end()
        for pid in _processes_of(fleet, "chat"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        cgroup.remove()

    return mend


ENGINES = [
    Outage(
        "an engine is frozen",
        _freeze,
        _thaw,
        r"engine chat .* does not answer /health .*frozen by its cgroup; thaw it",
        CHAT_AWAY,
        runbook="engine-frozen",
        cannot=_can("cgroup.freeze"),
    ),
    Outage(
        "an engine's memory runs out",
        _take_memory,
        _end,
        r"engine chat .* is (down|starting) .*signal 9 .*host memory ran out",
        CHAT_AWAY,
        runbook="out-of-memory",
        cannot=_can("memory.max", "memory.limit_in_bytes"),
    ),
    Outage(
        "an engine hangs",
        lambda fleet: _stop(fleet.pid_of("chat")),
        _go_on,
        r"engine chat .* does not answer /health .*thread \d+ is stopped",
        CHAT_AWAY,
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
    # These outages stay, because the last minute's requests are remembered.
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


def _proxy_with_certificate(fleet: Fleet, days: int, urgent_s: int) -> Any:
    """Starts a proxy of this fleet that terminates TLS. Its certificate expires
    in `days` days, and counts as a trouble from `urgent_s` before that."""
    cert, key, request = (
        str(fleet.folder / f"tls.{end}") for end in ("pem", "key", "csr")
    )
    curve = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    for words in (
        ["req", "-new", "-newkey", *curve, "-nodes", "-subj", "/CN=localhost"]
        + ["-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-signkey", key, "-out", cert]
        + ["-days", str(days)],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    said = subprocess.run(
        ["openssl", "x509", "-in", cert, "-noout", "-enddate"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    end = datetime.datetime.strptime(said.strip(), "notAfter=%b %d %H:%M:%S %Y %Z")
    sign = end.replace(tzinfo=datetime.timezone.utc).timestamp() - urgent_s
    admin = free_port()
    proxy = fleet.start(
        *("fineserve-proxy", "--fleet", str(fleet.fleet)),
        *("--listen", "127.0.0.1:0", "--admin", f"127.0.0.1:{admin}"),
        *("--tls-cert", cert, "--tls-key", key),
    )
    fleet.prometheus.watch(fleet, admin)
    fleet.sign = (sign, sign)
    return proxy


def _end_proxy(fleet: Fleet, process: Any) -> None:
    fleet.end(process, signal.SIGKILL)
    fleet.prometheus.watch(fleet)


def _end_process(fleet: Fleet, process: Any) -> None:
    fleet.end(process, signal.SIGKILL)


def _kill_proxy(fleet: Fleet) -> None:
    fleet.stop("fineserve-proxy", signal.SIGKILL)


def _start_proxy(fleet: Fleet, _: Any) -> None:
    fleet.start_proxy(fleet.fleet)
    fleet.prometheus.watch(fleet)


def _kill_up(fleet: Fleet) -> None:
    fleet.stop("fsctl", signal.SIGKILL)


def _stop_engine_without_up(fleet: Fleet) -> tuple[int, ...]:
    fleet.stop("fsctl", signal.SIGKILL)
    pid = fleet.pid_of("chat")
    with fleet.first_sign():
        return _stop(pid)


def _go_on_with_up(fleet: Fleet, pids: tuple[int, ...]) -> None:
    _go_on(fleet, pids)
    fleet.start("fsctl", "up", str(fleet.fleet))


def _start_up(fleet: Fleet, _: Any) -> None:
    fleet.start("fsctl", "up", str(fleet.fleet))


def _fill_table(fleet: Fleet, pid: int, left: int) -> tuple[int, tuple[int, int]]:
    """Limits the process to `left` more open files, or to none at all if `left`
    is 0."""

    def limit_of_now() -> int:
        time.sleep(0.1)
        used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
        free = (number for number in itertools.count() if number not in used)
        return next(itertools.islice(free, left, None))

    # Takes the lowest of several looks, because some recent connections are
    # still being closed.
    limit = min(limit_of_now() for _ in range(20)) if left else 3
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with fleet.first_sign():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    return pid, before


def _empty_table(_: Fleet, filled: tuple[int, tuple[int, int]]) -> None:
    resource.prlimit(filled[0], resource.RLIMIT_NOFILE, filled[1])


def _fill_disk(fleet: Fleet) -> pathlib.Path:
    junk = fleet.folder / "run/junk"
    with junk.open("wb") as file:
        disk = os.fstatvfs(file.fileno())
        with fleet.first_sign():
            os.posix_fallocate(
                file.fileno(), 0, disk.f_bavail * disk.f_frsize
            )
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
        "an engine dies again and again",
        _kill_again_and_again,
        _end,
        r"engine chat .* is (down|starting) for the \d+(st|nd|rd|th) time; .*signal 9",
        CHAT_AWAY,
        runbook="engine-loops",
    ),
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
        _fill_disk, _empty_disk, r"disk of .* is full", WELL,
        runbook="disk-full",
    ),
    Outage(
        "a proxy of another fleet",
        _second_proxy,
        _end_process,
        r"two fleets share one runtime folder",
        WELL,
    ),
    Outage(
        "the certificate expires today",
        lambda fleet: _proxy_with_certificate(fleet, days=1, urgent_s=86400),
        _end_proxy,
        r"certificate of fineserve-proxy \d+ expires within 24 h",
        but(alerts={"FineserveCertificateExpires"}),
    ),
    # It has been so for a day.
    Outage(
        "the certificate has expired",
        lambda fleet: _proxy_with_certificate(fleet, days=-1, urgent_s=0),
        _end_proxy,
        r"certificate of fineserve-proxy \d+ has expired",
        but(alerts={"FineserveCertificateExpires"}),
        runbook="certificate-expired",
    ),
    Outage(
        "the clock is set",
        _nothing_begins,
        _nothing,
        "",
        WELL,
        cannot=lambda: "the wall clock is the machine's: no namespace has its own",
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
        lambda fleet: _fill_table(fleet, fleet.pid_of_program("fineserve-proxy"), 0),
        _empty_table,
        r"proxy.* does not answer.*: its descriptor table is full",
        # The proxy cannot reach an engine, either. The existing connection from
        # Prometheus goes on.
        dataclasses.replace(
            _WITHOUT_PROXY,
            serves=(("chat", False), ("code", False)),
            alerts=frozenset({"FineserveEngineAway"}),
        ),
        # The alert may fire if a scrape has timed out on a busy machine,
        # because its connection is then gone.
        may_alert=frozenset({"FineserveProxyAway"}),
        runbook="descriptors-full",
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
    Outage(
        "an engine hangs without fsctl up",
        _stop_engine_without_up,
        _go_on_with_up,
        r"engine chat does not serve",
        CHAT_AWAY,
    ),
]


def _start_stray(fleet: Fleet) -> Any:
    """Starts an engine while no daemon runs, so that no daemon has it. Its
    first allocation is the sign."""
    with fleet.first_sign():
        stray = fleet.start(
            *("fsctl", "run", "--no-daemon", "--kv-size", "32MiB"),
            *("--name", "stray", "--"),
            *(fleet.program("tinyserve"), "--model", "stray", "--port", "0"),
            *("--blocks", "512"),  # 64 KiB each
        )
        fleet.wait_for("the stray listens", lambda: "ready port=" in fleet.logs())
    return stray


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
    # A reserve of descriptors is left (kReservedDescriptors). Links to proxies
    # and engines go on.
    Outage(
        "the daemon's descriptor table is full",
        lambda fleet: _fill_table(fleet, fleet.daemon_pid(), 8),
        _empty_table,
        r"daemon \d+ .* does not answer; .*its descriptor table is full",
        but(serves=None, daemon_is_well=False),
    ),
    # Nothing can repair the following outages while engines live in the pool.
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

def _restart_askers(fleet: Fleet) -> None:
    """Restarts the programs, because they keep an address that they know."""
    _kill_proxy(fleet)
    _kill_up(fleet)
    fleet.start("fsctl", "up", str(fleet.fleet))
    _start_proxy(fleet, None)


def _deny_names(fleet: Fleet) -> None:
    fleet.names.answer = "no such name"
    _restart_askers(fleet)


def _silence_names(fleet: Fleet) -> None:
    fleet.names.answer = ""
    _restart_askers(fleet)


def _answer_names(fleet: Fleet, _: Any) -> None:
    fleet.names.answer = "127.0.0.1"


_UNKNOWN = (
    rf"engine chat .*cannot be reached: the name chat\.{NameServer.DOMAIN} "
    "does not resolve"
)

NAMES = [
    Outage(
        "an engine's name is unknown",
        _deny_names,
        _answer_names,
        _UNKNOWN,
        CHAT_AWAY,
        runbook="name-unknown",
    ),
    Outage(
        "the name server is silent",
        _silence_names,
        _answer_names,
        _UNKNOWN,
        CHAT_AWAY,
    ),
]

PARTS = {"engines": ENGINES, "programs": PROGRAMS, "daemon": DAEMON, "names": NAMES}


def agrees_with_runbook(fleet: Fleet, entry: str) -> bool:
    command, lines = entries()[entry]
    said = fleet.fsctl(*command.split()[1:]).stdout
    return all(pattern_of(line).search(said) for line in lines)


def lateness(before: dict[str, float], now: dict[str, float]) -> float:
    """Returns for how long all threads waited between two results of waited(),
    in seconds."""
    return sum(max(0, s - before.get(thread, 0)) for thread, s in now.items())


def off_by(since: str, sign: tuple[float, float]) -> float:
    """Returns by how much the time of a trouble is outside that of its first
    sign, in seconds; negative if it is too early."""
    at = datetime.datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    return min(0, at - sign[0]) + max(0, at - sign[1])


def row(*cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def row_of(outage: Outage, status: Status, word: Word, since: str) -> str:
    """Returns a row of design note 0041's table: what each source said."""

    def engines(serves: tuple[tuple[str, bool | None], ...] | None) -> str:
        if serves is None:
            return "silent"
        lost = [f"{e} {'down' if s is not None else '?'}" for e, s in serves if not s]
        return ", ".join(lost) or "serve"

    what = re.sub(r"/tmp/\S*/", "", status.find(outage.says)["what"])
    drained = [f"{engine} drains" for engine in word.drains]
    return row(
        outage.name,
        re.sub(r"\d{3,}", "N", what)[:90],
        ", ".join([engines(word.serves)] + drained),
        "well" if word.daemon_is_well else "FAIL",
        engines(word.page_serves),
        {None: "silent", True: "200", False: "503"}[word.is_ready],
        {None: "silent", True: "decides 1", False: "decides 0"}[word.decides],
        ", ".join(sorted(word.alerts)) or "none",
        since,
    )


def check(fleet: Fleet, outage: Outage, waited: dict[str, float]) -> None:
    """Causes the outage, checks what all say of it, and prints its row.
    `waited`: as it was while all was well."""
    last: list[Any] = []
    fleet.sign = (0, 0)
    before = time.time()
    state = outage.begin(fleet)
    if fleet.sign == (0, 0):
        fleet.sign = (before, time.time())

    def all_say() -> bool:
        last[:] = [fleet.status()]
        trouble = last[0].find(outage.says)
        if trouble is None or last[0].code != 1:
            return False
        if trouble["since_s"] is None:
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
    within = f"{time.time() - before:.1f} s"
    since = last[0].find(outage.says)["since"]
    off = off_by(since, fleet.sign)
    said = f"{off:+.2f} s"
    late = lateness(waited, fleet.waited())
    if abs(off) > SLACK_S + outage.more_slack_s + late:
        raise AssertionError(
            f"{outage.name}: since {since} is {said} off its first sign, "
            f"{fleet.sign}, and programs waited {late:.1f} s: {last[0]}"
        )
    print(f"{outage.name}: said within {within}, since: {said}")
    print(row_of(outage, *last, said), flush=True)
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
    made = 0
    try:
        fleet.wait_for("all is well", lambda: well(fleet))
        waited = fleet.waited()
        for outage in outages:
            if why := outage.cannot():
                print(f"SKIP {outage.name}: {why}", flush=True)
                continue
            with contextlib.suppress(subprocess.CalledProcessError, StopIteration):
                strays |= {
                    fleet.daemon_pid(),
                    fleet.pid_of("chat"),
                    fleet.pid_of("code"),
                }
            check(fleet, outage, waited)
            made += 1
            waited = fleet.waited()
            if outage.stays:
                continue
            try:
                fleet.wait_for(f"after: {outage.name}", lambda: well(fleet))
            except AssertionError:
                raise AssertionError(
                    f"after: {outage.name}: {fleet.status()}{fleet.logs()}"
                ) from None
        print(f"{made} of {len(outages)} outages", flush=True)
    finally:
        fleet.close()
        for stray in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)


# More slack for a lost machine: its lease was renewed up to 1.25 s before its
# last sign of life; etcd may notice the lease's end late, and is asked twice a
# second.
_LEASE_S = 1.0


def machines(bin_: pathlib.Path) -> None:
    """Checks `fsctl status` and `fsctl nodes` on one of two machines."""
    two = TwoMachines(bin_)
    made = 0

    def status() -> list[dict[str, Any]]:
        said = two.here.fsctl("status", "--json").stdout
        return json.loads(said)["troubles"]

    def is_over() -> bool:
        return two.both_are_alive() and not any(
            re.search(r"etcd|fineserve-node", t["what"]) for t in status()
        )

    def said(
        name: str,
        pattern: str,
        outage: contextlib.AbstractContextManager[None],
        states: dict[str, str],
        more_slack_s: float = 0,
    ) -> None:
        nonlocal made
        before = waited(*two.marks())
        begins = time.time()
        with outage:
            sign = (begins, time.time())
            troubles: list[dict[str, Any]] = []
            now: dict[str, str] = {}

            def all_say() -> bool:
                troubles[:] = [t for t in status() if re.search(pattern, t["what"])]
                nodes = two.here.fsctl("nodes", "--json").stdout
                seen = json.loads(nodes)["machines"] if nodes else []
                now.clear()
                now.update({m["name"]: m["state"] for m in seen})
                return bool(
                    troubles
                    and troubles[0]["since"]
                    and all(now.get(name) == state for name, state in states.items())
                )

            two.here.wait_for(name, all_say)
            off = off_by(troubles[0]["since"], sign)
            late = lateness(before, waited(*two.marks()))
            if abs(off) > SLACK_S + more_slack_s + late:
                raise AssertionError(
                    f"{name}: {off:+.1f} s off {sign}, and programs waited "
                    f"{late:.1f} s: {troubles}"
                )
            nodes = ", ".join(f"{n} {s}" for n, s in sorted(now.items()))
            what = troubles[0]["what"][:90]
            print(row(name, what, nodes, f"{off:+.2f} s"), flush=True)
            made += 1

    @contextlib.contextmanager
    def done(act: Callable[[], None]) -> Iterator[None]:
        act()
        yield

    try:
        two.start()
        slow = r"etcd does not answer .* in time"
        said("etcd hangs", slow, two.etcd_hangs(), {})
        two.here.wait_for("etcd is back", is_over)
        said("etcd is slow", slow, two.etcd_is_slow(), {})
        two.here.wait_for("etcd is fast again", is_over)
        hangs = two.here.paused("fineserve-node")
        said("fineserve-node hangs", "fineserve-node does not run", hangs, {})
        two.here.wait_for("the node is back", is_over)
        said(
            "another machine goes",
            r"machine there is (silent|lost)",
            done(two.the_other_goes),
            {"here": "alive"},
            more_slack_s=_LEASE_S,
        )
        said("etcd is killed", slow, done(two.etcd_goes), {})
    finally:
        two.close()
    print(f"{made} outages", flush=True)


def own_network() -> NameServer:
    """Sets up loopback and a name server for this process and those that it
    starts."""
    flags = struct.pack("16sh", b"lo", 1)  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        fcntl.ioctl(any_, 0x8914, flags)  # SIOCSIFFLAGS
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("nameserver 127.0.0.1\n")
        file.flush()
        for over, text in (("/etc/resolv.conf", file.name),):
            subprocess.run(["mount", "--bind", text, os.path.realpath(over)], check=True)
    return NameServer()


def enter_namespace(part: str) -> str:
    """Runs this program again in its own namespaces. Returns only if that is
    impossible, and says why."""
    kinds = {"programs": ["--mount"], "names": ["--mount", "--net"]}[part]
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    own = ["unshare", *kinds, *as_root]
    if subprocess.run([*own, "true"], capture_output=True).returncode == 0:
        os.execvp(own[0], [*own, sys.executable, *sys.argv, "--inside"])
    return f"{' '.join(own)} is not allowed here"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--part", choices=[*PARTS, "machines"], required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    needed = "etcd" if arguments.part == "machines" else "prometheus"
    if shutil.which(needed) is None:
        print(f"SKIP: {needed} is not installed; run scripts/setup")
        return 77
    if arguments.part == "machines":
        machines(arguments.bin)
        return 0
    outages = PARTS[arguments.part]
    names = None
    # A full disk and a name server need namespaces of this test.
    if arguments.part in ("programs", "names") and not arguments.inside:
        why = enter_namespace(arguments.part)
        if arguments.part == "names":
            print(f"SKIP: a name server needs a network of its own: {why}")
            return 77
        for outage in outages:
            if outage.name == "the disk is full":
                outage.cannot = lambda: f"it needs a file system of its own: {why}"
    elif arguments.part == "names":
        names = own_network()
    tight = arguments.part == "programs" and arguments.inside
    walk(Fleet(arguments.bin, tight, names), outages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
