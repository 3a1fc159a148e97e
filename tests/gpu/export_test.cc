// Does a descriptor of device memory reach another process, and how many
// descriptors fit in one message? Everything FineServe does depends on this.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using conformance::Channel;
using conformance::Peer;
using conformance::Session;

void ShareOneGranule() {
  Peer peer([](Channel& channel) {
    const Session gpu;
    const int fd = channel.ReceiveDescriptor();
    const auto address = gpu.Reserve(gpu.granularity());
    gpu.MapAt(address, gpu.granularity(), gpu.Import(fd));
    EXPECT_EQ(gpu.Read(address), 11u);
    gpu.Write(address + 4, 12);
    channel.Send(0);
    channel.Receive();  // the last owner of the mapping goes after the reader
  });
  const Session gpu;
  const auto handle = gpu.Create(gpu.granularity());
  const auto address = gpu.Reserve(gpu.granularity());
  gpu.MapAt(address, gpu.granularity(), handle);
  gpu.Write(address, 11);
  peer.channel().SendDescriptor(gpu.Export(handle));
  peer.channel().Receive();
  EXPECT_EQ(gpu.Read(address + 4), 12u);
  peer.channel().Send(0);
  peer.Join();
}

CONFORMANCE_TEST(Export, TwoProcessesShareADescriptor) { ShareOneGranule(); }

// True if this machine is virtual. This CPU flag is the only sign of a
// hypervisor that programs see.
bool InVirtualMachine() {
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    return line.find(" hypervisor") != std::string::npos;
  }
  return false;
}

CONFORMANCE_TEST(Sandbox, DescriptorsAreSharedInsideAVirtualMachine) {
  if (!InVirtualMachine()) GTEST_SKIP() << "this machine is not virtual";
  ShareOneGranule();
}

}  // namespace
}  // namespace fineserve::gpu
