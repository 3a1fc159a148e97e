#ifndef DAEMON_CONTRACT_ABI_SOCKET_PATH_H_
#define DAEMON_CONTRACT_ABI_SOCKET_PATH_H_

// Path on which a GPU's daemon listens. Shim, fsctl and daemon must agree, so
// the rule is part of the contract:
//
//   folder   $FINESERVE_RUNTIME_DIR, else /run/fineserve if that folder exists
//            or we are root, else $XDG_RUNTIME_DIR/fineserve, else
//            /tmp/fineserve-<uid>
//   socket   <folder>/GPU-<uuid>.sock
//   lock     the socket's path + ".lock"; stays when its daemon is gone
//
// The UUID is the key because a device's ordinal depends on
// CUDA_VISIBLE_DEVICES.
//
// Any user can make the folder in /tmp before the daemon does, so every client
// checks before it connects that it may trust the socket there. Used by the
// shim, hence libc only. Any thread.

#include <cstddef>
#include <cstdint>

namespace fineserve::abi {

inline constexpr char kLockSuffix[] = ".lock";

// Capacity of the buffers below. sun_path is shorter, so the daemon refuses a
// folder that does not fit there.
inline constexpr size_t kPathBytes = 512;

// Writes the folder, NUL-terminated. Returns false if it does not fit. Its only
// access to the file system is one stat. Any thread.
bool RuntimeFolder(char (&out)[kPathBytes]);

// Writes the socket's path in `folder`. Returns false if it does not fit into
// sockaddr_un.
bool SocketPath(const char* folder, const uint8_t (&gpu_uuid)[16],
                char (&out)[kPathBytes]);

// Writes "GPU-8-4-4-4-12", NVIDIA's spelling. `out` holds 41 bytes.
void FormatGpuUuid(const uint8_t (&gpu_uuid)[16], char (&out)[41]);

// True if this process runs as root and `uid` owns the service's folder. Only
// root can have put that folder there, because everything above it belongs to
// root alone, like /run/fineserve. Root trusts that user in that folder, since
// root chose it.
bool IsServiceUser(const char* folder, unsigned uid);

// True if only this user and root can have put a socket at `path`: its folder
// is owned by one of them and closed to all others (mode 0700), and the file at
// `path`, if there is one, is a socket that one of them owns. Neither may be a
// symbolic link. If this process is root, the folder's service user
// (IsServiceUser) is trusted too. If the result is false, `why` gives the
// reason in one line.
bool IsTrustedPath(const char* path, char* why, size_t why_bytes);

// True if the process at the other end of the connected socket `fd` runs as
// this user or root. If this process is root, the service user of the path's
// folder is trusted too. If the result is false, `why` gives the reason in one
// line, with `path`.
bool IsTrustedPeer(int fd, const char* path, char* why, size_t why_bytes);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SOCKET_PATH_H_
