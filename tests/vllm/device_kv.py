"""A KV cache in the memory of an (emulated) GPU, for engines made of Python.

It is allocated as vLLM's workers do it: through WorkerWrapperBase, in the
context that a worker has for the KV cache, in one piece.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Iterable
from typing import Any

SLOT = struct.Struct("<q")


class Device:
    """Calls the CUDA driver through ctypes, with a separate context. If
    $FINESERVE_TEST_DRIVER is set, it is the emulated driver, which stock
    libraries do not find."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL(
            os.environ.get("FINESERVE_TEST_DRIVER", "libcuda.so.1")
        )
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise MemoryError(f"{name}: CUDA error {result}")

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._call(
            "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size)
        )
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def fill(self, address: int, value: int, count: int) -> None:
        self._call(
            "cuMemsetD8_v2",
            ctypes.c_uint64(address),
            ctypes.c_ubyte(value),
            ctypes.c_size_t(count),
        )

    def write(self, address: int, content: bytes) -> None:
        self._call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(address),
            content,
            ctypes.c_size_t(len(content)),
        )

    def read(self, address: int, count: int) -> bytes:
        content = ctypes.create_string_buffer(count)
        self._call(
            "cuMemcpyDtoH_v2",
            content,
            ctypes.c_uint64(address),
            ctypes.c_size_t(count),
        )
        return content.raw


class Worker:
    """The part of a worker that WorkerWrapperBase drives for the KV cache."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.kv: DeviceKv | None = None

    def _maybe_get_memory_pool_context(self, tag: str) -> Any:
        return contextlib.ExitStack()

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        # Allocates outside of the context, as V1 does to profile graphs.
        self._device.free(self._device.allocate(8 << 20))
        (tensor,) = kv_cache_config.kv_cache_tensors
        with self._maybe_get_memory_pool_context("kv_cache"):
            base = self._device.allocate(tensor.size)
        # Zeroes the whole tensor, as torch.zeros does.
        self._device.fill(base, 0, tensor.size)
        self.kv = DeviceKv(self._device, base, tensor)


class DeviceKv:
    """Slots of signed 64-bit numbers, in each layer's page of each block."""

    def __init__(self, device: Device, base: int, tensor: Any) -> None:
        self._device = device
        self._block_stride = tensor.block_stride
        self._layers = [
            base + tensor.offset + layer * tensor.layer_stride
            for layer in range(len(tensor.layers))
        ]

    def __getitem__(self, block: int) -> Row:
        at = block * self._block_stride
        return Row(self._device, [layer + at for layer in self._layers])


class Row:
    """One block, which compares and slices like a list of its slots. Layer l
    holds each number plus l, so that a mix-up of layers shows."""

    def __init__(self, device: Device, pages: list[int]) -> None:
        self._device = device
        self._pages = pages

    def __setitem__(self, slot: int, value: int) -> None:
        for layer, page in enumerate(self._pages):
            self._device.write(
                page + slot * SLOT.size, SLOT.pack(value + layer)
            )

    def __getitem__(self, slots: slice) -> list[int]:
        assert not slots.start and not slots.step
        return self._read(slots.stop)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, list)
        return self._read(len(other)) == other

    def _read(self, count: int) -> list[int]:
        found = [
            [
                value - layer
                for (value,) in SLOT.iter_unpack(
                    self._device.read(page, count * SLOT.size)
                )
            ]
            for layer, page in enumerate(self._pages)
        ]
        same = all(page == found[0] for page in found)
        return found[0] if same else []


class SlabTable:
    """The engine that holds each slab, read from the daemon's table in this
    process (daemon/contract/abi/slab_table.h), independently of the plugin.

    Args:
        gpu: the UUID of the GPU whose table it is; None if there is one only.

    A daemon that begins a new pool has a new table. The shim keeps the earlier
    tables mapped, so the newest one counts.
    """

    _MAGIC = b"FSTABLE\0"
    # Offsets in TableHeader, and sizes.
    _ENGINE_CAPACITY, _ENGINES, _SLABS, _SLAB_COUNT = 36, 40, 44, 60
    _STARTED, _GPU = 64, slice(72, 88)
    _ENGINE_BYTES, _SLAB_BYTES = 512, 32

    def __init__(self, gpu: bytes | None = None) -> None:
        self._gpu = gpu
        self._read(self._find())

    def _read(self, table: memoryview) -> None:
        self._memory = table
        self._slabs = self._word(self._SLABS)
        self._count = self._word(self._SLAB_COUNT)
        self._engine = self._own_id()

    @property
    def count(self) -> int:
        """Returns the number of slabs of the pool at its largest size."""
        return self._count

    def _word(self, offset: int) -> int:
        (value,) = struct.unpack_from("<I", self._memory, offset)
        return value

    def _find(self) -> memoryview:
        found = []
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "/memfd:fineserve-table" in line:
                    low, high = re.match(r"(\w+)-(\w+)", line).groups()
                    size = int(high, 16) - int(low, 16)
                    content = (ctypes.c_char * size).from_address(int(low, 16))
                    header = content.raw[: self._GPU.stop]
                    assert header[:8] == self._MAGIC
                    if self._gpu in (None, header[self._GPU]):
                        found.append(memoryview(content).cast("B"))
        if not found:
            raise AssertionError("no slab table in this process")
        return max(found, key=self._started)

    def _started(self, table: memoryview) -> int:
        """Returns when the table's daemon started it."""
        (value,) = struct.unpack_from("<Q", table, self._STARTED)
        return value

    def _own_id(self) -> int:
        first = self._word(self._ENGINES)
        for slot in range(self._word(self._ENGINE_CAPACITY)):
            record = first + slot * self._ENGINE_BYTES + 8
            engine, state = struct.unpack_from("<II", self._memory, record)
            pids = struct.unpack_from("<16I", self._memory, record + 32)
            if state == 1 and os.getpid() in pids:
                return engine
        raise AssertionError("the slab table does not know this process")

    def require_leased(self, view_indices: Iterable[int]) -> None:
        """Raises AssertionError if a slab is not leased to this process."""
        indices = list(view_indices)
        try:
            self._require_leased(indices)
        except AssertionError:
            newest = self._find()
            if self._started(newest) == self._started(self._memory):
                raise
            self._read(newest)
            self._require_leased(indices)

    def _require_leased(self, view_indices: Iterable[int]) -> None:
        for index in view_indices:
            (word,) = struct.unpack_from(
                "<Q",
                self._memory,
                self._slabs + (index - 1) * self._SLAB_BYTES,
            )
            owner = word >> 8 & 0xFFFFFF
            if not 1 <= index <= self._count or owner != self._engine:
                raise AssertionError(
                    f"slab at view index {index} is used and not leased: "
                    f"word {word:#x}, this is engine {self._engine}"
                )
