"""The preloaded shim's C interface (shim/fineserve_kv.h) for ctypes.

The header is the reference; names here follow it. Functions that an engine
calls in every step keep the GIL: they do not block, and a thread that lets go
of the GIL may wait milliseconds to get it back. The others release it.
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Sequence
from typing import Any


class Error(enum.IntEnum):
    INVALID = 1
    STATE = 2
    NO_DAEMON = 3
    REFUSED = 4
    EXHAUSTED = 5
    DRIVER = 6
    FORKED = 7
    NO_MEMORY = 8


class Stage(enum.IntEnum):
    PLUGIN_LOADED = 1
    POOL_REPLACED = 2
    POOL_CONSTRUCTED = 3


class Mode(enum.IntEnum):
    VIEW = 1
    GUARDED = 2
    STRICT = 3


# Flags of a format.
RANK = 1
REGISTERED = 2

LEASED = 1
ASKED_BACK = 2


class Presence(enum.IntEnum):
    HERE = 0
    ASKED_TO_LEAVE = 1
    AWAY = 2


class KvError(RuntimeError):
    """Raised when a function failed; the message is fs_kv_error()'s."""

    def __init__(self, function: str, code: int, text: str) -> None:
        if code == Error.FORKED:
            text += "; set VLLM_WORKER_MULTIPROC_METHOD=spawn"
        super().__init__(f"FineServe: {text} ({function})")
        self.code = code

    @property
    def is_for_good(self) -> bool:
        """True if the same call would fail again however often it is tried."""
        return self.code in (Error.STATE, Error.INVALID, Error.FORKED)


class _Struct(ctypes.Structure):
    """A structure that stores its size in its first member, as the interface
    requires."""

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_bytes=ctypes.sizeof(self), **members)


class Groups(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint32),
        ("block_tokens", ctypes.c_uint32),
        ("window_tokens", ctypes.c_uint32),
    )


class Format(_Struct):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("planes", ctypes.c_uint32),
        ("planes_per_allocation", ctypes.c_uint32),
        ("page_bytes", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("block_tokens", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("floor_blocks", ctypes.c_uint64),
        ("cap_blocks", ctypes.c_uint64),
        ("groups", Groups * 4),
        ("states", ctypes.c_uint32),
        ("filling_tokens", ctypes.c_uint32),
        ("answering_tokens", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Geometry(_Struct):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("slab_count", ctypes.c_uint32),
        ("blocks", ctypes.c_uint64),
        ("plane_bytes", ctypes.c_uint64),
        ("floor_slabs", ctypes.c_uint32),
        ("cap_slabs", ctypes.c_uint32),
    )


class Pool(_Struct):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("slab_count", ctypes.c_uint32),
        ("slab_bytes", ctypes.c_uint64),
        ("granule_bytes", ctypes.c_uint64),
    )


class Stats(_Struct):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("leased_slabs", ctypes.c_uint32),
        ("leaving_slabs", ctypes.c_uint32),
        ("wanted_slabs", ctypes.c_uint32),
        ("free_blocks", ctypes.c_uint64),
        ("used_blocks", ctypes.c_uint64),
        ("failed_allocations", ctypes.c_uint64),
        ("watermark_misses", ctypes.c_uint64),
        ("returned_slabs", ctypes.c_uint64),
        ("driver_calls_to_activate", ctypes.c_uint64),
        ("driver_calls_serving", ctypes.c_uint64),
    )


class Rank(_Struct):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("gpu_uuid", ctypes.c_uint8 * 16),
        ("engine_name", ctypes.c_char * 64),
    )


class Range(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    )


class Change(ctypes.Structure):
    _fields_ = (
        ("view_index", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
    )


_u32, _u64, _int = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_P = ctypes.POINTER
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "fs_kv_begin": (None, ()),
    "fs_kv_end": (None, ()),
    "fs_kv_error": (ctypes.c_char_p, ()),
    "fs_kv_progress": (_int, (_int,)),
    "fs_kv_read_pool": (_int, (_P(Pool),)),
    "fs_kv_register": (_int, (_P(Format), _P(Geometry))),
    "fs_kv_activate": (_int, ()),
    "fs_kv_close": (_int, ()),
    "fs_kv_suspend": (_int, ()),
    "fs_kv_resume": (_int, ()),
    "fs_kv_leave": (_int, ()),
    "fs_kv_come_back": (_int, (_int,)),
    "fs_leave_gpu": (_int, (_int,)),
    "fs_return_to_gpu": (_int, (_int,)),
    "fs_kv_slab_blocks": (_int, (_u32, _P(_u64), _P(_u64))),
    "fs_kv_read_rank": (_int, (_P(Rank),)),
    "fs_kv_join_ranks": (_int, (_P(Rank), _u32, _P(Geometry))),
    "fs_kv_follow": (_int, (_P(Rank),)),
    "fs_kv_wait": (_int, (_int,)),
    "fs_kv_read_stats": (_int, (_P(Stats),)),
    "fs_weights_freeze": (_int, (_P(Range), _u32)),
    "fs_weights_thaw": (_int, (_int,)),
}
_IN_EVERY_STEP: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "fs_kv_poll": (_int, (_P(Change), _u32)),
    "fs_kv_want": (_int, (_u32,)),
    "fs_kv_return_slab": (_int, (_u32,)),
    "fs_kv_publish": (_int, (_u32, _u32)),
    "fs_kv_presence": (_int, ()),
}

_POLL_CAPACITY = 64


class Shim:
    """The functions of fineserve_kv.h; errors are raised as KvError. The
    header says which threads may call them.

    Raises:
        RuntimeError: the preloaded library lacks a function.
    """

    def __init__(self) -> None:
        self._f: dict[str, Any] = {}
        for library, signatures in (
            (ctypes.CDLL(None), _SIGNATURES),
            (ctypes.PyDLL(None), _IN_EVERY_STEP),
        ):
            for name, (result, arguments) in signatures.items():
                try:
                    function = getattr(library, name)
                except AttributeError:
                    raise RuntimeError(
                        f"FineServe: the preloaded shim and this plugin have "
                        f"different versions: the shim lacks {name}"
                    ) from None
                function.restype, function.argtypes = result, arguments
                self._f[name] = function
        self._poll = self._f["fs_kv_poll"]
        self._publish = self._f["fs_kv_publish"]
        self._changes = (Change * _POLL_CAPACITY)()

    def _call(self, name: str, *arguments: Any) -> int:
        result: int = self._f[name](*arguments)
        if result != 0:
            self._fail(name, result)
        return result

    def _fail(self, name: str, code: int) -> None:
        text: bytes = self._f["fs_kv_error"]()
        raise KvError(name, code, text.decode(errors="replace"))

    def begin(self) -> None:
        self._f["fs_kv_begin"]()

    def end(self) -> None:
        self._f["fs_kv_end"]()

    def progress(self, stage: Stage) -> None:
        self._call("fs_kv_progress", stage)

    def pool(self) -> Pool:
        pool = Pool()
        self._call("fs_kv_read_pool", pool)
        return pool

    def register(self, format_: Format) -> Geometry:
        geometry = Geometry()
        self._call("fs_kv_register", format_, geometry)
        return geometry

    def activate(self) -> None:
        self._call("fs_kv_activate")

    def suspend(self) -> None:
        self._call("fs_kv_suspend")

    def resume(self) -> None:
        self._call("fs_kv_resume")

    def presence(self) -> Presence:
        return Presence(self._f["fs_kv_presence"]())

    def leave(self) -> None:
        self._call("fs_kv_leave")

    def come_back(self, timeout_ms: int) -> bool:
        """Returns True once the process's memory is on the GPU."""
        result: int = self._f["fs_kv_come_back"](timeout_ms)
        return result > 0

    def leave_gpu(self, timeout_ms: int) -> None:
        self._call("fs_leave_gpu", timeout_ms)

    def return_to_gpu(self, timeout_ms: int) -> None:
        self._call("fs_return_to_gpu", timeout_ms)

    def rank(self) -> bytes:
        """Returns the bytes with which another process joins this process's
        rank."""
        rank = Rank()
        self._call("fs_kv_read_rank", rank)
        return bytes(rank)

    def join_ranks(self, ranks: Sequence[bytes]) -> Geometry:
        """Takes over the blocks of these ranks, which are given as their rank()
        bytes."""
        geometry = Geometry()
        found = (Rank * len(ranks))(
            *(Rank.from_buffer_copy(rank) for rank in ranks)
        )
        self._call("fs_kv_join_ranks", found, len(ranks), geometry)
        return geometry

    def follow(self, first: bytes) -> None:
        """Sets the first of the engine's ranks, given as its rank() bytes."""
        self._call("fs_kv_follow", Rank.from_buffer_copy(first))

    def slab_blocks(self, view_index: int) -> range:
        first, end = _u64(), _u64()
        self._call("fs_kv_slab_blocks", view_index, first, end)
        return range(first.value, end.value)

    def poll(self) -> Sequence[tuple[int, int]]:
        """Returns (view index, LEASED or ASKED_BACK) for each change."""
        count = self._poll(self._changes, _POLL_CAPACITY)
        if count == 0:
            return ()
        found: list[tuple[int, int]] = []
        while True:
            if count < 0:
                self._fail("fs_kv_poll", -count)
            found += ((c.view_index, c.kind) for c in self._changes[:count])
            if count < _POLL_CAPACITY:
                return found
            count = self._poll(self._changes, _POLL_CAPACITY)

    def want(self, slabs: int) -> None:
        self._call("fs_kv_want", slabs)

    def return_slab(self, view_index: int) -> None:
        self._call("fs_kv_return_slab", view_index)

    def publish(self, view_index: int, used_blocks: int) -> None:
        result = self._publish(view_index, used_blocks)
        if result != 0:
            self._fail("fs_kv_publish", result)

    def wait(self, timeout_ms: int) -> bool:
        """Returns True if the leases or the presence may have changed."""
        result: int = self._f["fs_kv_wait"](timeout_ms)
        if result < 0:
            self._fail("fs_kv_wait", -result)
        return result > 0

    def freeze(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Names the memory that holds nothing but parameters, as (address,
        bytes)."""
        self._call(
            "fs_weights_freeze",
            (Range * len(ranges))(*(Range(*one) for one in ranges)),
            len(ranges),
        )

    def thaw(self, timeout_ms: int) -> None:
        self._call("fs_weights_thaw", timeout_ms)

    def stats(self) -> Stats:
        stats = Stats()
        self._call("fs_kv_read_stats", stats)
        return stats


def preloaded() -> bool:
    """Returns True if the shim is in this process and switched on."""
    if os.environ.get("FINESERVE_DISABLE", "") not in ("", "0"):
        return False
    return hasattr(ctypes.CDLL(None), "fs_kv_begin")


def may_be_evicted() -> bool:
    """Returns True if this process's memory may leave the GPU."""
    return os.environ.get("FINESERVE_EVICT") == "auto"


def view_is_wanted() -> bool:
    """Returns True if this process was started for a view of the pool."""
    return os.environ.get("FINESERVE_VIEW", "") not in ("", "0")


def view_is_required() -> bool:
    """Returns True if this process must not run without a view."""
    return os.environ.get("FINESERVE_VIEW") == "required"
