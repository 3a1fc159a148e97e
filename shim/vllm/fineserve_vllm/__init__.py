"""FineServe's plugin for vLLM: a block pool on leased slabs."""
