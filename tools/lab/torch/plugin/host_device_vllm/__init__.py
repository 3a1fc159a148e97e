"""Runs stock vLLM's GPU worker on the host: operators, Triton, attention."""
