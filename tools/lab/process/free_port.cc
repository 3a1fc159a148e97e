#include "tools/lab/process/free_port.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <random>
#include <string>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::process {
namespace {

struct Range {
  uint16_t first;
  uint16_t last;
};

// Returns ports above those of well-known servers and outside the kernel's
// range for outgoing connections: below that range, or else above it.
Range OutsideTheKernels() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  unsigned low = 32768, high = 60999;
  file >> low >> high;
  constexpr unsigned kFirst = 10'000;
  if (low > kFirst + 1'000) return {kFirst, static_cast<uint16_t>(low - 1)};
  return {static_cast<uint16_t>(high + 1), 65535};
}

// Takes a socket name that one process at a time can have; the kernel frees it
// when that process ends, however it ends.
bool Reserve(uint16_t port) {
  driver::Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "fineserve-port-" + std::to_string(port);
  memcpy(address.sun_path + 1, name.data(), name.size());
  const size_t bytes = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
           static_cast<socklen_t>(bytes)) != 0) {
    return false;
  }
  fd.Release();  // open until this process ends
  return true;
}

bool IsFree(uint16_t port) {
  const driver::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) == 0;
}

// If a row is not free, its ports stay reserved: there are enough others.
bool TakeRow(int first, int count) {
  for (int port = first; port < first + count; ++port) {
    const auto one = static_cast<uint16_t>(port);
    if (!Reserve(one) || !IsFree(one)) return false;
  }
  return true;
}

}  // namespace

uint16_t FreePort() { return FreePorts(1); }

uint16_t FreePorts(int count) {
  static const Range range = OutsideTheKernels();
  static std::mt19937 random(RandomSeed());
  std::uniform_int_distribution<int> any(range.first, range.last - count + 1);
  for (int tries = 0; tries < 1'000; ++tries) {
    const int first = any(random);
    if (TakeRow(first, count)) return static_cast<uint16_t>(first);
  }
  fprintf(stderr, "no free port of 127.0.0.1 from %u to %u\n", range.first,
          range.last);
  exit(1);
}

}  // namespace fineserve::process
