#ifndef SHIM_LINK_SEQPACKET_H_
#define SHIM_LINK_SEQPACKET_H_

// SOCK_SEQPACKET sockets: the daemon's, seen from its client, and those of
// processes that communicate with each other. Waits are bounded; signals of the
// host neither break nor prolong them.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace fineserve::shim {

// The time of CLOCK_MONOTONIC.
uint64_t NowNs();
uint64_t NowMs();

// Connects to the daemon's socket, if the socket can be trusted
// (daemon/contract/abi/socket_path.h). Returns the descriptor, or -1 with one
// line in `why`.
int ConnectTo(const char* path, int timeout_ms, char* why, size_t why_bytes);

// The name of a socket in the abstract namespace, as the kernel chooses it.
using SocketName = char[8];

// Listens under `name`. If `name` is empty, the kernel chooses a name, which is
// written to `name`. Returns the descriptor, which does not block, or -1.
int ListenAs(SocketName& name);

// Connects to such a socket of another process. Returns the descriptor, or -1.
// The caller checks the peer (PeerOf).
int ConnectToName(const SocketName& name, int timeout_ms);

// Finds the process at the other end, at the time when it connected or began to
// listen. False unless it runs as this process's user, in a place where this
// process can see it.
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
