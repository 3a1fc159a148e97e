"""Replaces kv_abi.Shim: the holder of this object decides about leases."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fineserve_vllm import kv_abi

GRANULE = 2 << 20


class FakeShim:
    """`slab_count` slabs of `plane_bytes` per plane. `calls` records its
    calls; `failing` names functions that fail, with their error."""

    def __init__(
        self,
        slab_count: int = 4,
        plane_bytes: int = GRANULE,
        slab_bytes: int = GRANULE,
    ) -> None:
        self.slab_count = slab_count
        self.plane_bytes = plane_bytes
        self.slab_bytes = slab_bytes
        self.calls: list[Any] = []
        self.failing: dict[str, kv_abi.Error] = {}
        self.format: kv_abi.Format | None = None
        self.changes: list[tuple[int, int]] = []
        self.wanted = 0
        self.used: dict[int, int] = {}
        self.returned: list[int] = []
        self.changed = threading.Event()
        self.suspended = False
        self.place = kv_abi.Presence.HERE
        self.closed = False
        self.daemon_lost = False
        self.losses = 0

    def _enter(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments) if arguments else name)
        if name in self.failing:
            raise kv_abi.KvError(name, self.failing[name], "as the test set it")

    def begin(self) -> None:
        self._enter("begin")

    def end(self) -> None:
        self._enter("end")

    def progress(self, stage: kv_abi.Stage) -> None:
        self._enter("progress", stage.name)

    def pool(self) -> kv_abi.Pool:
        return kv_abi.Pool(
            slab_count=self.slab_count,
            slab_bytes=self.slab_bytes,
            granule_bytes=GRANULE,
        )

    def register(self, format_: kv_abi.Format) -> kv_abi.Geometry:
        self._enter("register")
        self.format = format_
        fitting = format_.blocks * format_.page_bytes // self.plane_bytes - 1
        return kv_abi.Geometry(
            slab_count=min(self.slab_count, fitting),
            blocks=format_.blocks,
            plane_bytes=self.plane_bytes,
            floor_slabs=1,
            cap_slabs=self.slab_count,
        )

    def activate(self) -> None:
        self._enter("activate")

    def rank(self) -> bytes:
        return b"rank"

    def join_ranks(self, ranks: Sequence[bytes]) -> kv_abi.Geometry:
        self._enter("join_ranks", *ranks)
        return kv_abi.Geometry(
            slab_count=self.slab_count, floor_slabs=1, cap_slabs=self.slab_count
        )

    def follow(self, first: bytes) -> None:
        self._enter("follow", first)

    def suspend(self) -> None:
        self._enter("suspend")
        self.suspended = True
        self.changed.set()

    def resume(self) -> None:
        self._enter("resume")
        self.suspended = False

    def presence(self) -> kv_abi.Presence:
        return self.place

    def leave(self) -> None:
        self._enter("leave")
        self.place = kv_abi.Presence.AWAY
        self.suspended = True
        self.changed.set()

    def come_back(self, timeout_ms: int) -> bool:
        self._enter("come_back")
        return self.place != kv_abi.Presence.AWAY

    def slab_blocks(self, view_index: int) -> range:
        assert self.format is not None
        page = self.format.page_bytes
        return range(
            -(-view_index * self.plane_bytes // page),
            (view_index + 1) * self.plane_bytes // page,
        )

    def freeze(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._enter("freeze", *ranges)

    def thaw(self, timeout_ms: int) -> None:
        self._enter("thaw")

    def poll(self) -> list[tuple[int, int]]:
        changes, self.changes = self.changes, []
        self.changed.clear()
        return changes

    def want(self, slabs: int) -> None:
        self.wanted = slabs

    def return_slab(self, view_index: int) -> None:
        self.returned.append(view_index)

    def publish(self, view_index: int, used_blocks: int) -> None:
        self.used[view_index] = used_blocks

    def wait(self, timeout_ms: int) -> bool:
        changed = self.changed.wait(timeout_ms / 1000)
        if self.closed or self.suspended:
            raise kv_abi.KvError("wait", kv_abi.Error.STATE, "not active")
        if self.daemon_lost:
            self.losses += 1
            self.changed.clear()
            raise kv_abi.KvError("wait", kv_abi.Error.NO_DAEMON, "lost")
        return changed

    # The lessor's side.

    def lease(self, *indices: int) -> None:
        self.changes += [(i, kv_abi.LEASED) for i in indices]
        self.changed.set()

    def ask_back(self, *indices: int) -> None:
        self.changes += [(i, kv_abi.ASKED_BACK) for i in indices]
        self.changed.set()

    def lose_daemon(self) -> None:
        self.daemon_lost = True
        self.changed.set()

    def find_daemon(self) -> None:
        self.daemon_lost = False

    def close(self) -> None:
        self.closed = True
        self.changed.set()
