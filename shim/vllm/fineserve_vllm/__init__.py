"""FineServe's part inside vLLM: a block pool that lives on leased slabs."""
