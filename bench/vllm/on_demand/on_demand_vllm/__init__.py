"""Stock vLLM with a KV cache that is mapped on demand. This is kvcached's
method, written from its description as the baseline of the bench `vllm`."""
