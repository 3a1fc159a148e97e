#include "daemon/abi/trusted_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/abi/socket_path.h"

namespace fineserve::abi {
namespace {

bool IsTrusted(uid_t uid) { return uid == geteuid() || uid == 0; }

bool IsTrustedOwner(const char* path, const struct stat& st, char* why,
                    size_t why_bytes) {
  if (IsTrusted(st.st_uid)) return true;
  snprintf(why, why_bytes, "%s belongs to uid %u, not to this user or root",
           path, st.st_uid);
  return false;
}

bool IsTrustedFolder(const char* folder, char* why, size_t why_bytes) {
  struct stat st;
  if (lstat(folder, &st) != 0) {
    snprintf(why, why_bytes, "no daemon at %s (%s)", folder,
             strerrordesc_np(errno));
    return false;
  }
  if (!S_ISDIR(st.st_mode)) {
    snprintf(why, why_bytes, "%s is not a folder; remove it", folder);
    return false;
  }
  if (!IsTrustedOwner(folder, st, why, why_bytes)) return false;
  if ((st.st_mode & 0077) == 0) return true;
  snprintf(why, why_bytes,
           "other users may enter %s (mode %04o); make its mode 0700", folder,
           st.st_mode & 07777);
  return false;
}

}  // namespace

bool IsTrustedPath(const char* path, char* why, size_t why_bytes) {
  char folder[kPathBytes];
  const char* slash = strrchr(path, '/');
  const size_t length = slash == nullptr ? 0 : slash - path;
  if (length >= sizeof(folder)) {
    snprintf(why, why_bytes, "the socket path is too long: %s", path);
    return false;
  }
  memcpy(folder, path, length);
  folder[length] = '\0';
  // Of a name alone and of "/name".
  if (length == 0) strcpy(folder, slash == nullptr ? "." : "/");
  if (!IsTrustedFolder(folder, why, why_bytes)) return false;
  struct stat st;
  if (lstat(path, &st) != 0) return true;  // whoever connects will see
  if (!S_ISSOCK(st.st_mode)) {
    snprintf(why, why_bytes, "%s is not a socket; remove it", path);
    return false;
  }
  return IsTrustedOwner(path, st, why, why_bytes);
}

bool IsTrustedPeer(int fd, const char* path, char* why, size_t why_bytes) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
      IsTrusted(peer.uid)) {
    return true;
  }
  snprintf(why, why_bytes,
           "the process at %s runs as uid %u, not as this user or root", path,
           peer.uid);
  return false;
}

}  // namespace fineserve::abi
