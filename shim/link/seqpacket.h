#ifndef SHIM_LINK_SEQPACKET_H_
#define SHIM_LINK_SEQPACKET_H_

// The client's end of a SOCK_SEQPACKET socket. Its waits are bounded; signals
// of the host neither break nor prolong them.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// The time of CLOCK_MONOTONIC.
uint64_t NowNs();
uint64_t NowMs();

// Connects to the daemon's socket, if it can be trusted
// (daemon/abi/socket_path.h). Returns the descriptor, or -1 with one line in
// `why`.
int ConnectTo(const char* path, int timeout_ms, char* why, size_t why_bytes);

// Waits until `fd` can be read or its peer has gone. Returns 0, or an errno:
// ETIMEDOUT after `timeout_ms`.
int WaitReadable(int fd, int timeout_ms);

// Sends without waiting. Returns 0, or an errno: EAGAIN if the socket is full.
int SendAtOnce(int fd, const void* message, size_t bytes);

// False once the peer has closed its end. It does not wait.
bool IsOpen(int fd);

}  // namespace fineserve::shim

#endif  // SHIM_LINK_SEQPACKET_H_
