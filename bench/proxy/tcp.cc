#include "bench/proxy/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "bench/report/report.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::bench {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t n = sizeof(address);
  if (bind(fd, any, n) != 0 || listen(fd, 4096) != 0 ||
      getsockname(fd, any, &n) != 0) {
    Die(std::string("listen: ") + strerror(errno));
  }
  *port = ntohs(address.sin_port);
  return fd;
}

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    Die(std::string("connect: ") + strerror(errno));
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  SetNoDelay(fd);
  return fd;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void SendAll(int fd, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return;  // the reader notices the end
    if (n > 0) sent += static_cast<size_t>(n);
    pollfd room = {fd, POLLOUT, 0};
    if (n < 0) poll(&room, 1, 1000);
  }
}

bool IsReady(uint16_t port) {
  const driver::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    return false;
  }
  SendAll(fd.get(), "GET /ready HTTP/1.1\r\nHost: bench\r\n\r\n");
  char answer[12];
  return recv(fd.get(), answer, sizeof(answer), MSG_WAITALL) ==
             sizeof(answer) &&
         memcmp(answer, "HTTP/1.1 200", sizeof(answer)) == 0;
}

bool IsWholeMessage(const std::string& bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  const auto field = [&](const char* name) -> const char* {
    const char* at = strcasestr(bytes.c_str(), name);
    return at != nullptr && at < bytes.c_str() + end ? at + strlen(name)
                                                     : nullptr;
  };
  if (const char* length = field("\r\ncontent-length:")) {
    return bytes.size() >= end + 4 + strtoull(length, nullptr, 10);
  }
  return field("\r\ntransfer-encoding:") == nullptr ||
         (bytes.size() > end + 8 &&
          bytes.compare(bytes.size() - 5, 5, "0\r\n\r\n") == 0);
}

}  // namespace fineserve::bench
