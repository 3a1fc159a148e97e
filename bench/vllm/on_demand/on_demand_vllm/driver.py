"""The part of the CUDA driver that maps memory, through ctypes.

Handles of 2 MiB on PyTorch's current device; a call that fails raises
MemoryError.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

PAGE = 2 << 20

_PINNED = 1
_ON_DEVICE = 1
_READ_WRITE = 3


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    result = getattr(_library(), name)(*arguments)
    if result != 0:
        raise MemoryError(f"{name}: CUDA error {result}")


@functools.cache
def _location() -> _Location:
    import torch

    return _Location(_ON_DEVICE, torch.cuda.current_device())


def reserve(size: int) -> int:
    address = ctypes.c_uint64()
    _call(
        "cuMemAddressReserve",
        ctypes.byref(address),
        ctypes.c_size_t(size),
        ctypes.c_size_t(PAGE),
        ctypes.c_uint64(0),
        ctypes.c_uint64(0),
    )
    return address.value


def create() -> int:
    handle = ctypes.c_uint64()
    properties = _Properties(type=_PINNED, location=_location())
    _call(
        "cuMemCreate",
        ctypes.byref(handle),
        ctypes.c_size_t(PAGE),
        ctypes.byref(properties),
        ctypes.c_uint64(0),
    )
    return handle.value


def map_page(address: int, handle: int) -> None:
    _call(
        "cuMemMap",
        ctypes.c_uint64(address),
        ctypes.c_size_t(PAGE),
        ctypes.c_size_t(0),
        ctypes.c_uint64(handle),
        ctypes.c_uint64(0),
    )
    access = _Access(_location(), _READ_WRITE)
    _call(
        "cuMemSetAccess",
        ctypes.c_uint64(address),
        ctypes.c_size_t(PAGE),
        ctypes.byref(access),
        ctypes.c_size_t(1),
    )


def unmap_page(address: int) -> None:
    _call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(PAGE))


def release(handle: int) -> None:
    _call("cuMemRelease", ctypes.c_uint64(handle))
