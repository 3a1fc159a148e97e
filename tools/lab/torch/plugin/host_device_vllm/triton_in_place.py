"""Triton's interpreter works on the device's memory itself, in its stream.

By itself it copies the whole storage of each argument to the host and back,
which would write back other engines' slabs as they were before. Here a launch
takes its turn in the stream, and the program goes on.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from host_device_vllm import host_function

# Held while a kernel runs, because the interpreter then changes
# triton.language.
_interpreting = threading.Lock()


def install() -> None:
    """Runs kernels launched from now on in the stream's order.
    $TRITON_INTERPRET must be set."""
    from triton.runtime import interpreter

    executor = interpreter.GridExecutor
    interpret = executor.__call__

    def run(launch: Any) -> None:
        with _interpreting:
            launch()

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        host_function.enqueue(
            functools.partial(
                run, functools.partial(interpret, self, *args, **kwargs)
            )
        )

    executor.__call__ = launch
    executor._init_args_hst = lambda _, args, kwargs: (args, kwargs)
    executor._restore_args_dev = lambda *_: None
    _patch_language_once_a_launch(interpreter)
    # A third of its time; kernels that overflow do so on a GPU too.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        sanitize_overflow=False
    )


def _patch_language_once_a_launch(interpreter: Any) -> None:
    """Patches triton.language only once per launch: the interpreter patches it
    again at each call of a device function, on top of the existing patch, and
    does not undo that."""
    original = interpreter._patch_lang
    languages = (interpreter.tl, interpreter.tl.core)
    patched: list[Any] = []  # the languages
    scopes: list[Any] = []

    class Launch:
        def restore(self) -> None:
            patched.clear()
            while scopes:
                scopes.pop().restore()

    def patch(fn: Any) -> Launch:
        # Compares by identity, because globals may be tensors.
        used = [
            language
            for language in languages
            if any(value is language for value in fn.__globals__.values())
        ]
        if any(language not in patched for language in used):
            patched.extend(used)
            scopes.append(original(fn))
        return Launch()

    interpreter._patch_lang = patch
