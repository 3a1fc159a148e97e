// Does a descriptor alone keep device memory, when the process that created it
// has died and no process maps it? A daemon that takes over from another relies
// on this (design note 0029).

#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using conformance::Channel;
using conformance::OnEmulatedDevice;
using conformance::Peer;
using conformance::Session;

constexpr uint32_t kWord = 0x5eed;

// Maps the memory behind `fd`, expects `word` in it, and writes `next` there.
void Visit(int fd, uint32_t word, uint32_t next) {
  const Session gpu;
  const auto address = gpu.Reserve(gpu.granularity());
  gpu.MapAt(address, gpu.granularity(), gpu.Import(fd));
  EXPECT_EQ(gpu.Read(address), word);
  gpu.Write(address, next);
}

// Returns a process that has the device open, and so keeps the device's memory
// in any case; 0 if we see no such process.
pid_t Opener() {
  const std::string node = OnEmulatedDevice()
                               ? std::string(getenv("EMUCUDA_DIR")) + "/gpu"
                               : "/dev/nvidia";
  std::error_code ignored;
  for (const auto& process :
       std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const auto& one :
         std::filesystem::directory_iterator(process.path() / "fd", ignored)) {
      const std::string name =
          std::filesystem::read_symlink(one.path(), ignored);
      // Skips nvidiactl, nvidia-uvm and the descriptor whose effect is tested.
      if (name.rfind(node, 0) != 0 || name.size() == node.size() ||
          !isdigit(static_cast<unsigned char>(name[node.size()])) ||
          name.find(".memory") != std::string::npos) {
        continue;
      }
      return static_cast<pid_t>(std::stol(pid));
    }
  }
  return 0;
}

// The holder of the descriptor makes no CUDA call, like fineserved's parent.
CONFORMANCE_TEST(Keep, DescriptorAloneKeepsTheMemoryOfADeadProcess) {
  if (const pid_t opener = Opener(); opener != 0) {
    GTEST_SKIP() << "nothing can be concluded: pid " << opener
                 << " has the GPU open, and keeps its memory";
  }
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
  // Twice, because memory that has been imported once must be importable again.
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

// If Opener missed such a process, the test above would prove nothing about the
// descriptor.
CONFORMANCE_TEST(KeepCheck, SeesTheProcessThatHasTheDeviceOpen) {
  EMULATED_ONLY("which other processes use it");
  EXPECT_EQ(Opener(), 0);
  Peer user(HoldContext);
  user.channel().Receive();
  EXPECT_EQ(Opener(), user.pid());
}

}  // namespace
}  // namespace fineserve::gpu
