"""How far this plugin got, readable from C: vLLM logs and swallows the import
errors of plugins, so the shim must see for itself whether blocks are leased.

The word lies in a memfd named "fineserve-liveness", found through the links in
/proc/PID/fd ("/memfd:fineserve-liveness (deleted)"). Layout, little endian:

    offset  bytes
         0      8  magic "FSVLIVE\\0"
         8      4  ABI version, 1
        12      4  state, see State; only ever grows
        16      4  pid of the process the word speaks for
        20     12  zero

A forked child inherits its parent's descriptor: a word whose pid is not the
process asked about says nothing about that process. Errors are never raised: a
word that cannot be made leaves the state unread, which is the safe answer.
"""

from __future__ import annotations

import enum
import logging
import mmap
import os
import struct

_log = logging.getLogger(__name__)

NAME = "fineserve-liveness"
MAGIC = b"FSVLIVE\0"
ABI_VERSION = 1
LAYOUT = struct.Struct("<8sIII12x")
_STATE = struct.Struct("<I")
_STATE_OFFSET = 12


class State(enum.IntEnum):
    LOADED = 1  # vLLM found and ran the plugin
    POOL_REPLACED = 2  # schedulers built from now on use leases
    POOL_CONSTRUCTED = 3  # a scheduler runs on the leased pool


class _Word:
    """Lives as long as the process; the descriptor must stay open."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.state = 0
        descriptor = os.memfd_create(NAME)  # close-on-exec
        os.ftruncate(descriptor, LAYOUT.size)
        self._map = mmap.mmap(descriptor, LAYOUT.size)
        LAYOUT.pack_into(self._map, 0, MAGIC, ABI_VERSION, 0, self.pid)
        self._descriptor = descriptor

    def raise_to(self, state: State) -> None:
        if state > self.state:
            self.state = state
            _STATE.pack_into(self._map, _STATE_OFFSET, state)

    def close(self) -> None:
        self._map.close()
        os.close(self._descriptor)


_word: _Word | None = None


def raise_to(state: State) -> None:
    """Records that this process has come as far as `state`."""
    global _word
    try:
        if _word is not None and _word.pid != os.getpid():
            _word.close()  # the parent's; it keeps its own descriptor
            _word = None
        if _word is None:
            _word = _Word()
        _word.raise_to(state)
    except OSError as error:
        _log.warning("FineServe: no liveness word: %s", error)


def read(pid: int) -> State | None:
    """The state of a process of this user; None without a valid word."""
    folder = f"/proc/{pid}/fd"
    for entry in os.listdir(folder):
        path = f"{folder}/{entry}"
        try:
            if not os.readlink(path).startswith(f"/memfd:{NAME}"):
                continue
            with open(path, "rb") as word:
                content = word.read(LAYOUT.size)
        except OSError:  # closed meanwhile
            continue
        if len(content) < LAYOUT.size:
            continue
        magic, version, state, owner = LAYOUT.unpack(content)
        if (magic, version, owner) == (MAGIC, ABI_VERSION, pid) and state:
            return State(state)
    return None
