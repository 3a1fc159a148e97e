"""A stand-in for NVIDIA's package nixl, by the API that vLLM's NixlConnector
calls: agents that register memory, read each other's and notify each other.

Bytes go through a socket from the memory of one process into that of the other,
where device memory is host memory (the emulated device). Unlike the real one a
read can be held back, and can fail in part:

NIXL_STAND_IN: the folder of this package's settings, files that a test makes
and removes:
  hold     while it is there, no read writes a byte
  fail     while it is there, each read is reported as failed once a part of it
           has arrived; the rest arrives when it has gone
NIXL_STAND_IN_MS: how long a read takes at least.
"""
