"""The plugin's logger."""

from __future__ import annotations

import logging


def logger(name: str) -> logging.Logger:
    """Returns a logger below vLLM's own, the only one to which vLLM gives a
    handler and the level of VLLM_LOGGING_LEVEL."""
    return logging.getLogger(f"vllm.{name}")
