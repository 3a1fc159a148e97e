#include "daemon/fineserved/server/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/file_lock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::server {
namespace {

constexpr int kBacklog = 128;
// Longest wait for a daemon that was just killed and still holds its lock: on a
// busy machine, its end takes long.
constexpr absl::Duration kEnds = absl::Seconds(2);

absl::StatusOr<driver::Descriptor> TakeLock(const std::string& path) {
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return base::Cannot("open", path);
  if (!base::LockWithin(lock, kEnds)) {
    char pid[32] = {};
    if (pread(lock.get(), pid, sizeof(pid) - 1, 0) < 0) pid[0] = '\0';
    return absl::FailedPreconditionError(
        absl::StrCat("pid ", pid, " serves this GPU already (lock ", path,
                     "); stop it first"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) {
    return base::Cannot("write", path);
  }
  return lock;
}

// True if a process listens on that socket. While we hold the lock, it can only
// be this process.
bool IsListenedTo(const std::string& path) {
  const driver::Descriptor probe(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe.valid() &&
         (base::ConnectUnix(probe.get(), path) || errno == EAGAIN);
}

}  // namespace

absl::StatusOr<Endpoint> Endpoint::Claim(std::string folder,
                                         const uint8_t (&gpu_uuid)[16]) {
  char path[abi::kPathBytes];
  if (folder.empty()) {
    if (!abi::RuntimeFolder(path)) {
      return absl::InvalidArgumentError(
          "the runtime folder's path is too long");
    }
    folder = path;
  }
  absl::Status s = finding::MakeRuntimeFolder(folder);
  if (!s.ok()) return s;
  if (!abi::SocketPath(folder.c_str(), gpu_uuid, path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of a socket in ", folder, " is too long"));
  }
  absl::StatusOr<driver::Descriptor> lock =
      TakeLock(absl::StrCat(path, abi::kLockSuffix));
  if (!lock.ok()) return lock.status();
  return Endpoint(driver::KeepFolder(folder), *std::move(lock), path);
}

Endpoint::~Endpoint() {
  if (lock_.valid() && !is_kept_) unlink(socket_path_.c_str());
}

absl::StatusOr<driver::Descriptor> Endpoint::Listen(driver::Descriptor kept) {
  // listen() also makes this process the listener that SO_PEERCRED reports.
  if (kept.valid() && IsListenedTo(socket_path_) &&
      listen(kept.get(), kBacklog) == 0) {
    return kept;
  }
  driver::Descriptor listener(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::Cannot("make a socket for", socket_path_);
  const int on = 1;
  if (setsockopt(listener.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) !=
      0) {
    return base::Cannot("set SO_PASSCRED on", socket_path_);
  }
  if (!base::BindUnix(listener.get(), socket_path_)) {
    return base::Cannot("bind", socket_path_);
  }
  if (listen(listener.get(), kBacklog) != 0) {
    return base::Cannot("listen on", socket_path_);
  }
  return listener;
}

}  // namespace fineserve::server
