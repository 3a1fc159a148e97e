#include "tools/fsctl/process/listening_ports.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::fsctl {
namespace {

using ::testing::Contains;
using ::testing::Not;

driver::Descriptor Bound(int family, uint16_t* port) {
  driver::Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address = {};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // Both families have it at the same place.
  *port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return fd;
}

TEST(ListeningPortsTest, PortsOfAGroupAreThoseAtWhichItsProcessesListen) {
  uint16_t v4 = 0, v6 = 0, bound = 0;
  const driver::Descriptor a = Bound(AF_INET, &v4);
  const driver::Descriptor b = Bound(AF_INET6, &v6);
  const driver::Descriptor c = Bound(AF_INET, &bound);
  ASSERT_EQ(listen(a.get(), 1), 0);
  ASSERT_EQ(listen(b.get(), 1), 0);
  const auto ports = ListeningPorts(getpgrp());
  EXPECT_THAT(ports, Contains(v4));
  EXPECT_THAT(ports, Contains(v6));
  EXPECT_THAT(ports, Not(Contains(bound))) << "it does not listen there";
}

TEST(ListeningPortsTest, OtherGroupsHaveTheirOwn) {
  const process::ChildProcess other(
      process::Command{.words = {"sleep", "1000"}, .own_group = true});
  uint16_t mine = 0;
  const driver::Descriptor a = Bound(AF_INET, &mine);
  ASSERT_EQ(listen(a.get(), 1), 0);
  EXPECT_TRUE(ListeningPorts(other.pid()).empty());
}

}  // namespace
}  // namespace fineserve::fsctl
