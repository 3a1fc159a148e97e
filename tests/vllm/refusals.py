"""A plugin's refusals: all lines with which it may end a start, read from its
source."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

_BEGINNING = "FineServe: "


def refusals(plugin: pathlib.Path) -> list[str]:
    """By the alphabet; "…" for what depends on the engine. `plugin`: a folder,
    shim/vllm or shim/sglang."""
    return sorted({
        line
        for source in plugin.glob("*/*.py")
        for line in _raised(ast.parse(source.read_text()))
    })


def _raised(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if not isinstance(node, ast.Raise) or not isinstance(
            node.exc, ast.Call
        ):
            continue
        for argument in node.exc.args[:1]:
            text = _text(argument)
            if text.startswith(_BEGINNING):
                yield text.removeprefix(_BEGINNING)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return "…"
