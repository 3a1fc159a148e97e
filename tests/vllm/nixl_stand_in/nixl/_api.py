"""The part of nixl's Python API that vLLM's NixlConnector calls."""

from __future__ import annotations

import bisect
import ctypes
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np

from nixl._bindings import nixlXferTelemetry

_SETTINGS = pathlib.Path(os.environ["NIXL_STAND_IN"])
_TAKES_S = int(os.environ.get("NIXL_STAND_IN_MS", "0")) / 1000
_PART = 16  # descriptors of a read that go at once
_LOOK_S = 0.005  # between looks for a file

_LOCAL = "NIXL_INIT_AGENT"

Range = tuple[int, int]  # address, bytes

# Called before and after each part of a read, with the ranges that the part
# fills.
observer: Callable[[Sequence[Range]], None] = lambda ranges: None
# Number of reads that have begun, that have ended, and that have failed.
begun = ended = failed = 0
# Number of reads and answers that met memory other than what was registered.
stale = 0
_count = threading.Lock()


class nixl_agent_config:  # noqa: N801
    def __init__(self, **settings: Any) -> None:
        self.settings = settings


class nixl_agent:  # noqa: N801
    """A process's agent. It answers each of the other agents on a separate
    thread."""

    def __init__(self, name: str, config: Any = None) -> None:
        self.name = name
        self._registered = _Registered()
        self._remote: dict[str, str] = {}  # addresses by name
        self._notifs: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()
        self._address = f"\0nixl-{name}"
        listener = connection.Listener(self._address, "AF_UNIX", backlog=64)
        threading.Thread(
            target=self._serve, args=(listener,), daemon=True
        ).start()

    def _serve(self, listener: connection.Listener) -> None:
        while True:
            threading.Thread(
                target=self._answer, args=(listener.accept(),), daemon=True
            ).start()

    def _answer(self, other: Any) -> None:
        try:
            while True:
                what, *given = other.recv()
                if what == "read":
                    self._registered.check(given[0])
                    other.send_bytes(
                        b"".join(ctypes.string_at(*one) for one in given[0])
                    )
                else:
                    name, message = given
                    with self._lock:
                        self._notifs.setdefault(name, []).append(message)
        except (EOFError, OSError):
            other.close()

    # Memory.

    def get_reg_descs(self, ranges: Any, mem_type: str | None = None) -> Any:
        return [(int(start), int(size)) for start, size, *_ in ranges]

    def register_memory(self, descs: Any, backends: Any = ()) -> Any:
        for start, size in descs:
            self._registered.add(start, size)
        return descs

    def deregister_memory(self, descs: Any, backends: Any = ()) -> None:
        for start, _ in descs:
            self._registered.remove(start)

    # Other agents.

    def get_agent_metadata(self) -> bytes:
        return json.dumps([self.name, self._address]).encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        name, address = json.loads(metadata)
        self._remote[name] = address
        return name

    def remove_remote_agent(self, name: str) -> None:
        del self._remote[name]

    def check_remote_metadata(self, name: str) -> bool:
        return name in self._remote

    def send_notif(self, name: str, notif_msg: bytes) -> None:
        with connection.Client(self._remote[name], "AF_UNIX") as other:
            other.send(("notify", self.name, notif_msg))

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        with self._lock:
            found, self._notifs = self._notifs, {}
        return found

    # Reads.

    def get_xfer_descs(self, rows: Any, mem_type: str | None = None) -> Any:
        return rows

    def prep_xfer_dlist(
        self, name: str, rows: Any, mem_type: str | None = None
    ) -> Any:
        return name, _ranges(np.asarray(rows, dtype=np.uint64))

    def make_prepped_xfer(
        self,
        operation: str,
        local: Any,
        local_indices: Any,
        remote: Any,
        remote_indices: Any,
        notif_msg: bytes = b"",
    ) -> _Read:
        assert operation == "READ" and local[0] == _LOCAL
        name, theirs = remote
        return _Read(
            self,
            self._registered,
            self._remote[name],
            [local[1][i] for i in local_indices],
            [theirs[i] for i in remote_indices],
            notif_msg,
        )

    def transfer(self, read: _Read) -> str:
        global begun
        with _count:
            begun += 1
        threading.Thread(target=read.run, daemon=True).start()
        return "PROC"

    def check_xfer_state(self, read: _Read) -> str:
        return read.state

    def get_xfer_telemetry(self, read: _Read) -> nixlXferTelemetry:
        return nixlXferTelemetry(
            0, 1, read.microseconds, read.bytes, len(read.ours)
        )

    def release_xfer_handle(self, read: _Read) -> None:
        if read.state == "PROC":
            raise RuntimeError("a read that is under way cannot be aborted")

    def release_dlist_handle(self, handle: Any) -> None:
        pass


class _Read:
    def __init__(
        self,
        agent: nixl_agent,
        registered: _Registered,
        address: str,
        ours: list[Range],
        theirs: list[Range],
        message: bytes,
    ) -> None:
        self._agent, self._registered = agent, registered
        self._address, self._message = address, message
        self.ours, self._theirs = ours, theirs
        self.bytes = sum(size for _, size in ours)
        self.microseconds = 0
        self.state = "PROC"

    def run(self) -> None:
        global ended, failed
        began = time.monotonic()
        try:
            with connection.Client(self._address, "AF_UNIX") as other:
                time.sleep(_TAKES_S)  # as a link that is slow
                _wait_while("hold")
                for first in range(0, len(self.ours), _PART):
                    self._part(other, slice(first, first + _PART))
                    if first == 0 and (_SETTINGS / "fail").exists():
                        self.state = "ERR"
                        _wait_while("fail")
                if self.state == "PROC":
                    message = self._message
                    other.send(("notify", self._agent.name, message))
            self.microseconds = int(1e6 * (time.monotonic() - began))
            ok = self.state == "PROC"
        except (EOFError, OSError) as error:
            print(f"nixl stand-in: a read failed: {error!r}", flush=True)
            ok = False
        with _count:
            ended += 1
            failed += not ok
        self.state = "DONE" if ok else "ERR"

    def _part(self, other: Any, part: slice) -> None:
        other.send(("read", self._theirs[part]))
        content = other.recv_bytes()
        ours = self.ours[part]
        self._registered.check(ours)
        observer(ours)
        at = 0
        for address, size in ours:
            ctypes.memmove(address, content[at : at + size], size)
            at += size
        observer(ours)


def _wait_while(name: str) -> None:
    while (_SETTINGS / name).exists():
        time.sleep(_LOOK_S)


def _ranges(rows: Any) -> list[Range]:
    """Returns the ranges that rows describe: (address, bytes, device) or, from
    nixl 1.5 on, (address, bytes, device, stride, count)."""
    found: list[Range] = []
    for row in rows.tolist():
        address, size, _, stride, count = row if len(row) == 5 else (*row, 0, 1)
        found += ((address + i * stride, size) for i in range(count))
    return found


class _Registered:
    """Registered ranges, and the memory that backed them at registration. A
    network card reads and writes that memory, whatever is mapped there
    later."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[tuple[int, int, tuple[str, int]]]] = {}

    def add(self, start: int, size: int) -> None:
        self._ranges[start] = _behind(start, start + size)

    def remove(self, start: int) -> None:
        del self._ranges[start]

    def check(self, ranges: Sequence[Range]) -> None:
        global stale
        was = [_place(self._pieces(address), address) for address, _ in ranges]
        low = min(address for address, _ in ranges)
        high = max(address + size for address, size in ranges)
        pieces = _behind(low, high)
        now = [_place(pieces, address) for address, _ in ranges]
        if None in was or was != now:
            print(f"nixl stand-in: registered {was}, is {now}", flush=True)
            with _count:
                stale += 1

    def _pieces(self, address: int) -> list[tuple[int, int, tuple[str, int]]]:
        starts = [start for start in self._ranges if start <= address]
        return self._ranges[max(starts)] if starts else []


def _behind(low: int, high: int) -> list[tuple[int, int, tuple[str, int]]]:
    """Returns the mapped pieces of a range of addresses: (first, end, (file,
    file offset of address 0))."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            where, _, offset, device, inode, *_ = line.split()
            first, end = (int(number, 16) for number in where.split("-"))
            if first < high and end > low:
                file = (f"{device} {inode}", int(offset, 16) - first)
                found.append((first, end, file))
    return found


def _place(
    pieces: list[tuple[int, int, tuple[str, int]]], address: int
) -> tuple[str, int] | None:
    """Returns the file and the offset that back an address, or None."""
    i = bisect.bisect_right(pieces, (address, 1 << 64)) - 1
    if i < 0 or address >= pieces[i][1]:
        return None
    file, offset = pieces[i][2]
    return file, offset + address
