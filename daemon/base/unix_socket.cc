#include "daemon/base/unix_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace fineserve::base {
namespace {

// Writes the path into `address`. Returns false, with errno, if it does not
// fit.
bool Write(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    errno = ENAMETOOLONG;
    return false;
  }
  path.copy(address->sun_path, path.size());
  return true;
}

}  // namespace

bool ConnectUnix(int socket, const std::string& path) {
  sockaddr_un address;
  return Write(path, &address) &&
         connect(socket, reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)) == 0;
}

bool BindUnix(int socket, const std::string& path) {
  sockaddr_un address;
  if (!Write(path, &address)) return false;
  unlink(path.c_str());
  const mode_t mask = umask(0177);
  const int bound = bind(socket, reinterpret_cast<const sockaddr*>(&address),
                         sizeof(address));
  umask(mask);
  return bound == 0;
}

}  // namespace fineserve::base
