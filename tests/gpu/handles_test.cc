// How much do thousands of handles cost, in the daemon that creates them and in
// the engine that imports them and maps them as one range?

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kSampled = 64;  // every so many granules carry a word

// `count` adjacent granules, mapped read-write. The memory lives until the
// process ends.
class Range {
 public:
  Range(const Session& gpu, int count)
      : count_(count),
        unit_(gpu.granularity()),
        address_(gpu.Reserve(count * unit_)) {}

  CUdeviceptr at(int i) const { return address_ + i * unit_; }
  void Map(int i, CUmemGenericAllocationHandle handle) {
    EXPECT_EQ(map_([&] { return Cuda().cuMemMap(at(i), unit_, 0, handle, 0); }),
              CUDA_SUCCESS);
  }
  void Allow() {
    const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(access_([&] {
                return Cuda().cuMemSetAccess(address_, count_ * unit_, &access,
                                             1);
              }),
              CUDA_SUCCESS);
  }
  void Unmap() {
    EXPECT_EQ(
        unmap_([&] { return Cuda().cuMemUnmap(address_, count_ * unit_); }),
        CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuMemAddressFree(address_, count_ * unit_), CUDA_SUCCESS);
  }
  void Report(const std::string& who) const {
    Figure(who + "_map_us", map_.mean_us());
    Figure(who + "_set_access_of_all_ms", access_.total_ms());
    Figure(who + "_unmap_of_all_ms", unmap_.total_ms());
  }

 private:
  const int count_;
  const uint64_t unit_;
  const CUdeviceptr address_;
  Timed map_, access_, unmap_;
};

void Release(const std::vector<CUmemGenericAllocationHandle>& handles,
             const std::string& figure) {
  Timed release;
  for (const auto handle : handles) {
    EXPECT_EQ(release([&] { return Cuda().cuMemRelease(handle); }),
              CUDA_SUCCESS);
  }
  Figure(figure, release.mean_us());
}

// Plays the engine: receives `count` descriptors, maps them, and finds the
// owner's words.
void Import(Channel& channel, int count) {
  const Session gpu;
  Range range(gpu, count);
  Timed import;
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < count; ++i) {
    const int fd = channel.ReceiveDescriptor();
    handles.push_back(import([&] { return gpu.Import(fd); }));
    close(fd);
    range.Map(i, handles.back());
  }
  range.Allow();
  for (int i = 0; i < count; i += kSampled) {
    ASSERT_EQ(gpu.Read(range.at(i)), static_cast<uint32_t>(i));
  }
  range.Unmap();
  Release(handles, "engine_release_us");
  Figure("engine_import_us", import.mean_us());
  range.Report("engine");
  channel.Send(0);
}

// Plays the daemon: creates the granules, marks them, and exports them one by
// one.
void Own(const Session& gpu, Channel& engine, int count) {
  Range range(gpu, count);
  Timed create, exported;
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < count; ++i) {
    handles.push_back(create([&] { return gpu.Create(gpu.granularity()); }));
    range.Map(i, handles.back());
  }
  range.Allow();
  for (int i = 0; i < count; i += kSampled) {
    ASSERT_EQ(Cuda().cuMemsetD32_v2(range.at(i), i, 1), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  for (const auto handle : handles) {
    const int fd = exported([&] { return gpu.Export(handle); });
    engine.SendDescriptor(fd);
    close(fd);
  }
  engine.Receive();
  range.Unmap();
  Release(handles, "daemon_release_us");
  Figure("daemon_create_us", create.mean_us());
  Figure("daemon_create_of_all_ms", create.total_ms());
  Figure("daemon_export_us", exported.mean_us());
  range.Report("daemon");
}

void Handles(int count) {
  Peer engine([count](Channel& channel) {
    if (channel.Receive() != 0) Import(channel, count);
  });
  const Session gpu;
  const uint64_t bytes = count * gpu.granularity();
  const bool fits = gpu.FreeBytes() > bytes + bytes / 16;
  engine.channel().Send(fits);
  if (fits) Own(gpu, engine.channel(), count);
  engine.Join();
  if (!fits) {
    GTEST_SKIP() << count << " granules need " << bytes / kMiB
                 << " MiB; free are " << gpu.FreeBytes() / kMiB;
  }
}

CONFORMANCE_TEST(Handles, EightThousand) { Handles(8192); }

CONFORMANCE_TEST(Handles, ThirtyTwoThousand) { Handles(32768); }

}  // namespace
}  // namespace fineserve::gpu
