"""Stock vLLM with a KV cache that is mapped on demand: kvcached's way, written
from its description as the baseline of the bench `vllm`."""
