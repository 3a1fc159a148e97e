#ifndef SHIM_LINK_SEQPACKET_H_
#define SHIM_LINK_SEQPACKET_H_

// The client's end of a SOCK_SEQPACKET socket: bounded waits that a host's
// signals neither break nor prolong.

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// CLOCK_MONOTONIC.
uint64_t NowMs();

// Connects to the daemon's socket. Before that the file must belong to us or
// to root, afterwards so must the process behind it. Returns the descriptor,
// or -1 with one line in `why`.
int ConnectTo(const char* path, int timeout_ms, char* why, size_t why_bytes);

// Waits until `fd` can be read or its peer is gone. Returns 0 or errno;
// ETIMEDOUT after `timeout_ms`.
int WaitReadable(int fd, int timeout_ms);

// Sends without waiting: EAGAIN if the socket is full. Returns 0 or errno.
int SendAtOnce(int fd, const void* message, size_t bytes);

// False once the peer has closed its end. Does not wait.
bool IsOpen(int fd);

}  // namespace fineserve::shim

#endif  // SHIM_LINK_SEQPACKET_H_
