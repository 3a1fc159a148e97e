"""Two machines of one fleet on this one, with etcd. The first has a GPU and its
daemon; the second has only a fineserve-node."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

from fleet_site import FleetSite
from stage import free_port, table

_HOSTS = {"here": "127.0.0.1", "there": "127.0.0.2"}
def has_etcd() -> bool:
    return shutil.which("etcd") is not None


class Relay:
    """Relays between fineserve-node and etcd, and delays all that passes by
    `delay_s`."""

    def __init__(self, port: int, to: int) -> None:
        self.delay_s = 0.0
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                for ends in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_on, args=ends, daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one side has gone
            while data := source.recv(65536):
                time.sleep(self.delay_s)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class TwoMachines:
    """close() ends all processes."""

    def __init__(self, bin_: pathlib.Path) -> None:
        self.here, self._there = (FleetSite(bin_) for _ in _HOSTS)
        self._port = free_port()  # of the first one's daemon
        self._etcd_port, relayed = free_port(), free_port()
        self._relay = Relay(relayed, self._etcd_port)
        self._relay_port = relayed
        for name, site in self._sites():
            site.environment |= {
                "FINESERVE_MACHINE": name,
                "FINESERVE_KEYS": str(site.folder / "keys"),
            }

    def _sites(self) -> list[tuple[str, FleetSite]]:
        return [("here", self.here), ("there", self._there)]

    def start(self) -> None:
        """Starts both machines, and returns once the first one knows of the
        second."""
        self._start_etcd()
        self._exchange_keys()
        self.here.start_daemons()
        (gpu,) = self.here.uuids()
        self.here.stop("fineserved")
        fleet = self.here.folder / "fleet.toml"
        gpus = {"here": gpu, "there": "GPU-ffffffff"}
        fleet.write_text(
            table(
                "[cluster]",
                etcd=[f"127.0.0.1:{self._relay_port}"],
                port=self._port,
                machines=[
                    {"name": name, "host": host, "gpus": [gpus[name]]}
                    for name, host in _HOSTS.items()
                ],
            )
            + table("[[model]]", name="chat", slo_ttft_ms=2000)
            + table(
                "[[engine]]",
                name="chat",
                model="chat",
                url=f"http://{{host}}:{free_port()}",
                gpu=gpu,
            )
        )
        self.here.start_daemons(fleet)
        for _, site in self._sites():
            site.start("fineserve-node", "--fleet", str(fleet))
        self.here.wait_for("both machines are seen", self.both_are_alive)

    def _start_etcd(self) -> None:
        self._etcd = subprocess.Popen(
            ["etcd", "--log-level", "panic", "--logger", "zap"]
            + ["--data-dir", str(self.here.folder / "etcd")]
            + ["--listen-client-urls", f"http://127.0.0.1:{self._etcd_port}"]
            + ["--advertise-client-urls", f"http://127.0.0.1:{self._etcd_port}"]
            + ["--listen-peer-urls", "http://127.0.0.1:0"],
            env=os.environ | self.here.environment,
        )

    def _exchange_keys(self) -> None:
        keys = {}
        for name, site in self._sites():
            made = site.fsctl("keys", "new", "--json")
            keys[name] = json.loads(made.stdout)["public_key"]
        self.here.fsctl("keys", "trust", "there", keys["there"])
        self._there.fsctl("keys", "trust", "here", keys["here"])

    def both_are_alive(self) -> bool:
        seen = self.here.fsctl("nodes", "--json").stdout
        machines = json.loads(seen)["machines"] if seen else []
        states = {m["name"]: m["state"] for m in machines}
        return states == dict.fromkeys(_HOSTS, "alive")

    def a_stranger_knocks(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as knock:
            knock.sendall(b"GET / HTTP/1.1\r\n\r\n")

    def the_other_goes(self) -> None:
        self._there.stop("fineserve-node", signal.SIGKILL)

    @contextlib.contextmanager
    def etcd_hangs(self) -> Iterator[None]:
        self._etcd.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._etcd.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def etcd_is_slow(self) -> Iterator[None]:
        """Makes etcd slower than any of its clients waits."""
        self._relay.delay_s = 1.5
        try:
            yield
        finally:
            self._relay.delay_s = 0.0

    def marks(self) -> list[str]:
        """Returns the value of EMUCUDA_DIR that all processes of each machine
        have."""
        return [site.environment["EMUCUDA_DIR"] for _, site in self._sites()]

    def etcd_goes(self) -> None:
        self._etcd.kill()
        self._etcd.wait()

    def close(self) -> None:
        for _, site in self._sites():
            site.close()
        self.etcd_goes()
        self._relay.close()
