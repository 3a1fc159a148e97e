// Does a descriptor alone keep device memory, when the process that made it
// has died and nobody maps it? A daemon that takes over from another stands on
// this (design note 0029).

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using conformance::Channel;
using conformance::Peer;
using conformance::Session;

constexpr uint32_t kWord = 0x5eed;

// Maps the memory behind `fd`, expects `word` in it, and leaves `next`.
void Visit(int fd, uint32_t word, uint32_t next) {
  const Session gpu;
  const auto address = gpu.Reserve(gpu.granularity());
  gpu.MapAt(address, gpu.granularity(), gpu.Import(fd));
  EXPECT_EQ(gpu.Read(address), word);
  gpu.Write(address, next);
}

// The holder makes no CUDA call: it is fineserved's parent.
CONFORMANCE_TEST(Keep, DescriptorAloneKeepsTheMemoryOfADeadProcess) {
  int fd = -1;
  {
    Peer first([](Channel& channel) {
      const Session gpu;
      const auto handle = gpu.Create(gpu.granularity());
      const auto address = gpu.Reserve(gpu.granularity());
      gpu.MapAt(address, gpu.granularity(), handle);
      gpu.Write(address, kWord);
      channel.SendDescriptor(gpu.Export(handle));
      channel.Receive();
    });
    fd = first.channel().ReceiveDescriptor();
    first.Kill();
  }
  // Twice: what has been imported once can be imported again.
  for (uint32_t life = 0; life < 2; ++life) {
    Peer next([fd, life](Channel& channel) {
      const uint64_t start = NowNs();
      Visit(fd, kWord + life, kWord + life + 1);
      Figure("import_after_death_ms",
             static_cast<double>(NowNs() - start) / 1e6);
      channel.Send(0);
    });
    next.channel().Receive();
    next.Join();
  }
  close(fd);
}

}  // namespace
}  // namespace fineserve::gpu
