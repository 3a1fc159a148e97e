#ifndef DAEMON_BASE_UNIX_SOCKET_H_
#define DAEMON_BASE_UNIX_SOCKET_H_

#include <string>

namespace fineserve::base {

// Connects an AF_UNIX socket to the listener at `path`. Returns false, with
// errno, if it cannot; ENAMETOOLONG if the path is too long for a socket's
// address. The caller checks whether the path may be trusted
// (daemon/contract/abi/socket_path.h).
bool ConnectUnix(int socket, const std::string& path);

// Binds the socket to `path`, replacing any file there, for this user alone
// (0600). Changes the process's umask for a moment. Returns false, with errno,
// if it cannot.
bool BindUnix(int socket, const std::string& path);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_UNIX_SOCKET_H_
