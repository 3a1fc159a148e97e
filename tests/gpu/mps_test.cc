// If a client of NVIDIA's MPS imports memory, is it really the exporter's
// memory, and is a killed client listed like any other process? MPS clients
// share one context on the device.

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/teardown.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr char kControl[] = "nvidia-cuda-mps-control";

// The output of a command, and its exit status.
struct Output {
  int status;
  std::string text;
};
Output Shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  Output output = {0, ""};
  char part[256];
  while (fgets(part, sizeof(part), pipe) != nullptr) output.text += part;
  output.status = pclose(pipe);
  return output;
}

// A separate MPS control daemon, in a separate folder, so that other programs
// keep their own daemon. Changes no setting of the device. The destructor ends
// it.
class MpsDaemon {
 public:
  MpsDaemon() {
    if (mkdtemp(folder_.data()) == nullptr) return;
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", folder_.c_str(), 1);
    start_ = Shell(std::string(kControl) + " -d");
  }
  ~MpsDaemon() {
    if (running()) Control("quit");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  bool running() const { return start_.status == 0; }
  const std::string& complaint() const { return start_.text; }
  static Output Control(const std::string& line) {
    return Shell("echo " + line + " | " + kControl);
  }

 private:
  std::string folder_ = "/tmp/fineserve-mps-XXXXXX";
  Output start_ = {-1, "no folder in /tmp"};
};

void ExpectServer() {
  const std::string servers = MpsDaemon::Control("get_server_list").text;
  if (servers.find_first_of("123456789") == std::string::npos) {
    ADD_FAILURE() << "no MPS server ran: the programs were no clients";
  }
}

void ShareUnderMps() {
  Peer importer([](Channel& channel) {
    const Session gpu;
    const int fd = channel.ReceiveDescriptor();
    const CUdeviceptr address = gpu.Reserve(gpu.granularity());
    gpu.MapAt(address, gpu.granularity(), gpu.Import(fd));
    EXPECT_EQ(gpu.Read(address), 11u);
    gpu.Write(address, 12);
    channel.Send(0);
    channel.Receive();
  });
  const Session gpu;
  const auto handle = gpu.Create(gpu.granularity());
  const CUdeviceptr address = gpu.Reserve(gpu.granularity());
  gpu.MapAt(address, gpu.granularity(), handle);
  gpu.Write(address, 11);
  importer.channel().SendDescriptor(gpu.Export(handle));
  importer.channel().Receive();
  EXPECT_EQ(gpu.Read(address), 12u);
  ExpectServer();
  importer.channel().Send(0);
  importer.Join();
}

// Runs `body` as an MPS client in a separate process, so that everything it
// holds is gone before "quit".
void RunUnderMps(void (*body)()) {
  if (OnEmulatedDevice()) GTEST_SKIP() << "the emulated device has no MPS";
  if (getenv("FINESERVE_ALLOW_MPS") == nullptr) {
    GTEST_SKIP() << "starting an MPS daemon needs your permission: --mps";
  }
  if (Shell(std::string("command -v ") + kControl).status != 0) {
    GTEST_SKIP() << "no " << kControl << " on this machine";
  }
  const MpsDaemon daemon;
  if (!daemon.running()) {
    GTEST_SKIP() << kControl << " does not start: " << daemon.complaint();
  }
  Peer client([body](Channel&) { body(); });
  client.Join();
}

CONFORMANCE_TEST(Mps, ImportedMemoryIsTheExporters) {
  RunUnderMps(ShareUnderMps);
}

// Does the driver's list name a killed client for as long as its work runs?
CONFORMANCE_TEST(Mps, KilledClientHasWrittenBeforeItLeavesTheList) {
  RunUnderMps([] {
    uint64_t changed_words = 0;
    MeasureTeardown(&changed_words);
    EXPECT_EQ(changed_words, 0u);
    ExpectServer();
  });
}

}  // namespace
}  // namespace fineserve::gpu
