#include "tools/up/http_health.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/config/health_probe.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  return {found, &freeaddrinfo};
}

// SO_SNDTIMEO bounds connect as well.
driver::Descriptor Connect(const addrinfo& to, int timeout_ms) {
  driver::Descriptor fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) fd.Reset();
  return fd;
}

}  // namespace

bool IsTaken(const std::string& host, uint16_t port, int timeout_ms) {
  const Addresses addresses = Resolve(host, port);
  return addresses != nullptr && Connect(*addresses, timeout_ms).valid();
}

bool IsHealthy(const std::string& host, uint16_t port, int timeout_ms) {
  const Addresses addresses = Resolve(host, port);
  if (addresses == nullptr) return false;
  const driver::Descriptor fd = Connect(*addresses, timeout_ms);
  if (!fd.valid()) return false;
  const std::string request = config::HealthRequest(host, port);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return false;
  }
  char answer[16];
  const ssize_t n = recv(fd.get(), answer, sizeof(answer), MSG_WAITALL);
  if (n <= 0) return false;
  return config::SaysHealthy({answer, static_cast<size_t>(n)}).value_or(false);
}

}  // namespace fineserve::fsctl
