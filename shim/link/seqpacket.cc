#include "shim/link/seqpacket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/contract/abi/socket_path.h"

namespace fineserve::shim {
namespace {

// Connects before the deadline. A full backlog makes connect wait; SO_SNDTIMEO
// bounds that wait.
int ConnectBefore(int fd, const sockaddr_un& address, uint64_t deadline_ms,
                  socklen_t bytes = sizeof(sockaddr_un)) {
  for (;;) {
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
      return 0;
    }
    if (errno != EINTR) return errno;
    if (NowMs() >= deadline_ms) return ETIMEDOUT;
  }
}

int OpenSocket(int timeout_ms) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit = {timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return fd;
}

// Names that the kernel chooses have five characters after the byte that makes
// them abstract (unix(7), autobind).
constexpr size_t kNameCharacters = 5;
constexpr socklen_t kUnnamedBytes = sizeof(sa_family_t);
constexpr socklen_t kNamedBytes = kUnnamedBytes + 1 + kNameCharacters;
static_assert(sizeof(SocketName) > kNameCharacters);
constexpr int kBacklog = 64;

sockaddr_un AbstractAddress(const SocketName& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path + 1, name, kNameCharacters);
  return address;
}

}  // namespace

int ListenAs(SocketName& name) {
  const int fd =
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_un address = AbstractAddress(name);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = name[0] == '\0' ? kUnnamedBytes : kNamedBytes;
  if (bind(fd, generic, bytes) == 0 && listen(fd, kBacklog) == 0) {
    bytes = sizeof(address);
    if (getsockname(fd, generic, &bytes) == 0 && bytes == kNamedBytes) {
      memcpy(name, address.sun_path + 1, kNameCharacters);
      name[kNameCharacters] = '\0';
      return fd;
    }
  }
  close(fd);
  return -1;
}

int ConnectToName(const SocketName& name, int timeout_ms) {
  const int fd = OpenSocket(timeout_ms);
  if (fd < 0) return -1;
  if (ConnectBefore(fd, AbstractAddress(name), NowMs() + timeout_ms,
                    kNamedBytes) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// A process in another pid namespace has no pid here.
bool PeerOf(int fd, ucred* out) {
  socklen_t bytes = sizeof(*out);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &bytes) == 0 &&
         out->uid == geteuid() && out->pid > 0;
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint64_t NowMs() { return NowNs() / 1'000'000; }

int ConnectTo(const char* path, int timeout_ms, char* why, size_t why_bytes) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof(address.sun_path)) {
    snprintf(why, why_bytes, "the socket path is too long: %s", path);
    return -1;
  }
  strcpy(address.sun_path, path);
  if (!abi::IsTrustedPath(path, why, why_bytes)) return -1;
  const int fd = OpenSocket(timeout_ms);
  const int error =
      fd < 0 ? errno : ConnectBefore(fd, address, NowMs() + timeout_ms);
  if (error == EACCES) {
    snprintf(why, why_bytes,
             "this process may not connect to %s: run it as the daemon's user; "
             "under SELinux, with its label",
             path);
  } else if (error != 0) {
    snprintf(why, why_bytes, "no daemon at %s (%s)", path,
             strerrordesc_np(error));
  } else if (abi::IsTrustedPeer(fd, path, why, why_bytes)) {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

int WaitReadable(int fd, int timeout_ms) {
  const uint64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    const uint64_t now = NowMs();
    const int left = now >= deadline ? 0 : static_cast<int>(deadline - now);
    pollfd p = {fd, POLLIN, 0};
    const int ready = poll(&p, 1, left);
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

int SendAtOnce(int fd, const void* message, size_t bytes) {
  for (;;) {
    if (send(fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

bool IsOpen(int fd) {
  pollfd p = {fd, 0, 0};
  return poll(&p, 1, 0) <= 0 || (p.revents & (POLLHUP | POLLERR)) == 0;
}

}  // namespace fineserve::shim
