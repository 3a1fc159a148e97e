#ifndef DAEMON_ABI_TRUSTED_SOCKET_H_
#define DAEMON_ABI_TRUSTED_SOCKET_H_

// Whether a client may believe what listens at a daemon's socket: any user can
// make the folder in /tmp before the daemon does. Every client asks before it
// connects. Used by the shim, hence libc only. Any thread.

#include <cstddef>

namespace fineserve::abi {

// Whether only this user and root can have put a socket at `path`: its folder
// is one of theirs that nobody else may enter (mode 0700), and what lies at
// `path`, if anything does, is a socket of theirs. Neither may be a symbolic
// link. If not, `why` says so in one line.
bool IsTrustedPath(const char* path, char* why, size_t why_bytes);

// Whether the process at the other end of the connected socket `fd` runs as
// this user or root. If not, `why` says so in one line, with `path`.
bool IsTrustedPeer(int fd, const char* path, char* why, size_t why_bytes);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_TRUSTED_SOCKET_H_
