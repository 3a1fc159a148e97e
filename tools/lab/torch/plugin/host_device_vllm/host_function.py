"""Runs Python functions in the order of the current CUDA stream
(cudaLaunchHostFunc)."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import itertools
import os
import traceback
from collections.abc import Callable
from typing import Any

_pending: dict[int, Callable[[], None]] = {}
# Tokens of work that has run. The next enqueue() frees the work's tensors: on
# the stream's thread, freeing could wait for PyTorch's allocator, which waits
# for the stream when memory is short.
_done: collections.deque[int] = collections.deque()
_tokens = itertools.count(1)


@functools.cache
def _runtime() -> Any:
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaLaunchHostFunc.argtypes = (ctypes.c_void_p,) * 3
    return runtime


def enqueue(work: Callable[[], None]) -> None:
    """Runs `work` on the stream's thread once everything submitted before it
    has run. `work` must not wait for a stream. All objects that it refers to
    live until it has run."""
    import torch

    with contextlib.suppress(IndexError):  # another thread may empty it
        while True:
            del _pending[_done.popleft()]
    token = next(_tokens)
    _pending[token] = work
    stream = torch.cuda.current_stream().cuda_stream
    error = _runtime().cudaLaunchHostFunc(stream, _run, token)
    if error:
        raise RuntimeError(f"cudaLaunchHostFunc returned {error}")


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _run(token: int) -> None:
    """Runs the work of a token. Work that fails ends the process, because
    nothing after it could be right."""
    try:
        _pending[token]()
        _done.append(token)
    except BaseException:
        traceback.print_exc()
        os.abort()
