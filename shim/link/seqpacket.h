#ifndef SHIM_LINK_SEQPACKET_H_
#define SHIM_LINK_SEQPACKET_H_

// SOCK_SEQPACKET sockets: the daemon's, from its client's end, and those of
// processes that speak to each other. Waits are bounded; signals of the host
// neither break nor prolong them.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// The time of CLOCK_MONOTONIC.
uint64_t NowNs();
uint64_t NowMs();

// Connects to the daemon's socket, if it can be trusted
// (daemon/contract/abi/socket_path.h). Returns the descriptor, or -1 with one
// line in `why`.
int ConnectTo(const char* path, int timeout_ms, char* why, size_t why_bytes);

// The name of a socket in the abstract namespace, as the kernel chooses it.
using SocketName = char[8];

// Listens under that name, or, if it is empty, under one that the kernel
// chooses and that is written there. Returns the descriptor, which does not
// block, or -1.
int ListenAs(SocketName& name);

// Connects to such a socket of another process. Returns the descriptor, or -1.
// The caller checks who that is (PeerOf).
int ConnectToName(const SocketName& name, int timeout_ms);

// The process at the other end, at the time when it connected or began to
// listen. False unless it runs as this process's user, where this one can see
// it.
bool PeerOf(int fd, ucred* out);

// Waits until `fd` can be read or its peer has gone. Returns 0, or an errno:
// ETIMEDOUT after `timeout_ms`.
int WaitReadable(int fd, int timeout_ms);

// Sends without waiting. Returns 0, or an errno: EAGAIN if the socket is full.
int SendAtOnce(int fd, const void* message, size_t bytes);

// False once the peer has closed its end. It does not wait.
bool IsOpen(int fd);

}  // namespace fineserve::shim

#endif  // SHIM_LINK_SEQPACKET_H_
