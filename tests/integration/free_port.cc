#include "tests/integration/free_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "kernels/driver/descriptor.h"

namespace fineserve::integration {

uint16_t FreePort() {
  const driver::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  return ntohs(address.sin_port);
}

}  // namespace fineserve::integration
