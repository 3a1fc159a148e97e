"""Double: see tests/vllm/doubles/__init__.py."""

import enum


class EngineCoreRequestType(enum.Enum):
    ADD = b"\x00"
    WAKEUP = b"\x05"
