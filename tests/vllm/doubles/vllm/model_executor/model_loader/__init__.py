"""Double: see tests/vllm/doubles/__init__.py."""
