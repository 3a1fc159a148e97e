"""Double: see tests/vllm/doubles/__init__.py."""

__version__ = "double"
