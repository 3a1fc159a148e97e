#include "daemon/contract/abi/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace fineserve::abi {
namespace {

constexpr char kSystemFolder[] = "/run/fineserve";

bool Fits(int written, size_t capacity) {
  return written > 0 && static_cast<size_t>(written) < capacity;
}

const char* NonEmptyEnv(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

bool IsTrusted(uid_t uid) { return uid == geteuid() || uid == 0; }

// True if only root can have put this folder where it is: every folder above it
// belongs to root, and no other user may write there.
bool OnlyRootPlaced(const char* folder) {
  constexpr int kMostLevels = 32;
  char above[kPathBytes];
  if (!Fits(snprintf(above, sizeof(above), "%s", folder), sizeof(above))) {
    return false;
  }
  struct stat below;
  if (lstat(folder, &below) != 0) return false;
  for (int level = 0; level < kMostLevels; ++level) {
    const size_t length = strlen(above);
    struct stat st;
    if (!Fits(snprintf(above + length, sizeof(above) - length, "/.."),
              sizeof(above) - length) ||
        stat(above, &st) != 0 || st.st_uid != 0 || (st.st_mode & 0022) != 0) {
      return false;
    }
    if (st.st_dev == below.st_dev && st.st_ino == below.st_ino) return true;
    below = st;
  }
  return false;
}

// The kernel shows this uid for all users that a user namespace, such as a
// container's, does not map.
const char* HowSeen(uid_t uid) {
  constexpr uid_t kUnmapped = 65534;
  return uid == kUnmapped ? ", which this user namespace does not map" : "";
}

bool IsTrustedOwner(const char* path, const struct stat& st, char* why,
                    size_t why_bytes) {
  if (IsTrusted(st.st_uid)) return true;
  snprintf(why, why_bytes, "%s belongs to uid %u%s, not to this user or root",
           path, st.st_uid, HowSeen(st.st_uid));
  return false;
}

// Like IsTrustedOwner, for a file in `folder`.
bool IsTrustedOwnerIn(const char* folder, const char* path,
                      const struct stat& st, char* why, size_t why_bytes) {
  if (IsServiceUser(folder, st.st_uid)) return true;
  return IsTrustedOwner(path, st, why, why_bytes);
}

// Writes the folder of `path`. False if it does not fit.
bool FolderOf(const char* path, char (&out)[kPathBytes]) {
  const char* slash = strrchr(path, '/');
  const size_t length = slash == nullptr ? 0 : slash - path;
  if (length >= sizeof(out)) return false;
  memcpy(out, path, length);
  out[length] = '\0';
  // The folder of a bare name is ".", and that of "/name" is "/".
  if (length == 0) strcpy(out, slash == nullptr ? "." : "/");
  return true;
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
  if (!IsTrustedOwnerIn(folder, folder, st, why, why_bytes)) return false;
  if ((st.st_mode & 0077) == 0) return true;
  snprintf(why, why_bytes,
           "other users may enter %s (mode %04o); make its mode 0700", folder,
           st.st_mode & 07777);
  return false;
}

}  // namespace

bool RuntimeFolder(char (&out)[kPathBytes]) {
  struct stat st;
  if (const char* chosen = NonEmptyEnv("FINESERVE_RUNTIME_DIR")) {
    return Fits(snprintf(out, sizeof(out), "%s", chosen), sizeof(out));
  }
  if (geteuid() == 0 || (stat(kSystemFolder, &st) == 0 && S_ISDIR(st.st_mode) &&
                         access(kSystemFolder, X_OK) == 0)) {
    return Fits(snprintf(out, sizeof(out), "%s", kSystemFolder), sizeof(out));
  }
  if (const char* xdg = NonEmptyEnv("XDG_RUNTIME_DIR")) {
    return Fits(snprintf(out, sizeof(out), "%s/fineserve", xdg), sizeof(out));
  }
  return Fits(snprintf(out, sizeof(out), "/tmp/fineserve-%u", geteuid()),
              sizeof(out));
}

bool SocketPath(const char* folder, const uint8_t (&gpu_uuid)[16],
                char (&out)[kPathBytes]) {
  char uuid[41];
  FormatGpuUuid(gpu_uuid, uuid);
  return Fits(snprintf(out, sizeof(out), "%s/%s.sock", folder, uuid),
              sizeof(sockaddr_un::sun_path));
}

void FormatGpuUuid(const uint8_t (&u)[16], char (&out)[41]) {
  snprintf(out, sizeof(out),
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
           "%02x%02x%02x%02x%02x%02x",
           u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10],
           u[11], u[12], u[13], u[14], u[15]);
}

bool IsServiceUser(const char* folder, unsigned uid) {
  struct stat st;
  return geteuid() == 0 && lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
         st.st_uid == uid && OnlyRootPlaced(folder);
}

bool IsTrustedPath(const char* path, char* why, size_t why_bytes) {
  char folder[kPathBytes];
  if (!FolderOf(path, folder)) {
    snprintf(why, why_bytes, "the socket path is too long: %s", path);
    return false;
  }
  if (!IsTrustedFolder(folder, why, why_bytes)) return false;
  struct stat st;
  if (lstat(path, &st) != 0) return true;  // connecting will fail
  if (!S_ISSOCK(st.st_mode)) {
    snprintf(why, why_bytes, "%s is not a socket; remove it", path);
    return false;
  }
  return IsTrustedOwnerIn(folder, path, st, why, why_bytes);
}

bool IsTrustedPeer(int fd, const char* path, char* why, size_t why_bytes) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  char folder[kPathBytes];
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
      (IsTrusted(peer.uid) ||
       (FolderOf(path, folder) && IsServiceUser(folder, peer.uid)))) {
    return true;
  }
  snprintf(why, why_bytes,
           "the process at %s runs as uid %u%s, not as this user or root", path,
           peer.uid, HowSeen(peer.uid));
  return false;
}

}  // namespace fineserve::abi
