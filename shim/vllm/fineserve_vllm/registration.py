"""Has vLLM's NixlConnector register the KV cache once it is on the pool's
memory.

vLLM has it registered when it has been allocated. A view is on scratch then,
and its activation puts the pool's memory in place of that (design note 0010). A
device that reads and writes memory by itself goes on with what was behind the
addresses when they were registered.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

_FACTORY = "vllm.distributed.kv_transfer.kv_connector.factory"


class Registration:
    """The connector's registration of one worker, in whose process the view is
    activated."""

    def __init__(self) -> None:
        self._pending: list[Callable[[], None]] = []
        self._deferred: type | None = None
        self._is_active = False

    def defer(self, vllm_config: Any) -> None:
        """From now on the connector's worker registers once the view is active.
        To be called before the worker is built.

        Raises:
            RuntimeError: this vLLM lacks a name that this relies on.
        """
        try:
            factory = importlib.import_module(_FACTORY).KVConnectorFactory
            connector = factory.get_connector_class(
                vllm_config.kv_transfer_config
            )
            original = connector.register_kv_caches
        except (AttributeError, ImportError) as error:
            raise RuntimeError(
                f"FineServe: this vLLM version is not supported: {error}"
            ) from error
        if self._deferred is connector:
            return
        self._deferred = connector

        @functools.wraps(original)
        def register(its: Any, kv_caches: Any) -> None:
            if self._is_active:
                original(its, kv_caches)
            else:
                self._pending.append(
                    functools.partial(original, its, kv_caches)
                )

        connector.register_kv_caches = register

    def view_is_active(self) -> None:
        self._is_active = True
        while self._pending:
            self._pending.pop(0)()
