// The cost of moving weights off a GPU and back, depending on the size of a
// handle and on the kind of host memory that has the copy; compared with the
// pass that fingerprints the weights, and with the driver's own checkpoint.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "kernels/fingerprint_kernel.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kMoveRounds = 5;

uint64_t BytesToMove(const Session& gpu) {
  const uint64_t most = OnEmulatedDevice() ? 16 * kMiB : 4096 * kMiB;
  return std::min(most, gpu.FreeBytes() / 4) / gpu.granularity() *
         gpu.granularity();
}

double GigabytesPerS(uint64_t bytes, uint64_t ns) {
  return static_cast<double>(bytes) / static_cast<double>(ns);
}

// Measures the calls that one handle needs, repeated as often as fits into 4
// GiB, at most 32 times.
void MeasureHandlesOf(const Session& gpu, uint64_t bytes) {
  const uint64_t total = std::min(4096 * kMiB, gpu.FreeBytes() / 2);
  const auto count = static_cast<int>(
      std::min<uint64_t>(std::max<uint64_t>(total / bytes, 1), 32));
  Timed create, map, access, unmap, release;
  std::vector<CUmemGenericAllocationHandle> handles;
  const CUdeviceptr range = gpu.Reserve(count * bytes);
  for (int i = 0; i < count; ++i) {
    handles.push_back(create([&] { return gpu.Create(bytes); }));
  }
  const auto read_write = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  for (int i = 0; i < count; ++i) {
    const CUdeviceptr at = range + i * bytes;
    EXPECT_EQ(map([&] { return Cuda().cuMemMap(at, bytes, 0, handles[i], 0); }),
              CUDA_SUCCESS);
    EXPECT_EQ(access([&] {
                return Cuda().cuMemSetAccess(at, bytes, &read_write, 1);
              }),
              CUDA_SUCCESS);
  }
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(
        unmap([&] { return Cuda().cuMemUnmap(range + i * bytes, bytes); }),
        CUDA_SUCCESS);
    EXPECT_EQ(release([&] { return Cuda().cuMemRelease(handles[i]); }),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(Cuda().cuMemAddressFree(range, count * bytes), CUDA_SUCCESS);
  const std::string of = "_us_of_" + std::to_string(bytes / kMiB) + "_MiB";
  Figure("create" + of, create.mean_us());
  Figure("map" + of, map.mean_us());
  Figure("set_access" + of, access.mean_us());
  Figure("unmap" + of, unmap.mean_us());
  Figure("release" + of, release.mean_us());
}

CONFORMANCE_TEST(LargeHandles, CostBySize) {
  const Session gpu;
  for (const uint64_t mib : {2, 32, 256, 1024, 4096, 16384}) {
    if (mib * kMiB > gpu.FreeBytes() / 2) break;
    MeasureHandlesOf(gpu, mib * kMiB);
  }
}

// Measures copies to the device, copies back, and both at once, on separate
// streams.
void MeasureCopies(const std::string& kind, const Session& gpu, void* host,
                   uint64_t bytes) {
  static const CUdeviceptr device[] = {gpu.NewMapping(bytes),
                                       gpu.NewMapping(bytes)};
  static const CUstream streams[] = {NewStream(), NewStream()};
  std::vector<double> in, out, both;
  const auto half = bytes / 2;
  const auto other = static_cast<char*>(host) + half;
  for (int i = 0; i < kMoveRounds; ++i) {
    uint64_t began = NowNs();
    ASSERT_EQ(Cuda().cuMemcpyHtoDAsync_v2(device[0], host, bytes, streams[0]),
              CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuStreamSynchronize(streams[0]), CUDA_SUCCESS);
    in.push_back(GigabytesPerS(bytes, NowNs() - began));
    began = NowNs();
    ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(host, device[0], bytes, streams[0]),
              CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuStreamSynchronize(streams[0]), CUDA_SUCCESS);
    out.push_back(GigabytesPerS(bytes, NowNs() - began));
    began = NowNs();
    ASSERT_EQ(Cuda().cuMemcpyHtoDAsync_v2(device[0], host, half, streams[0]),
              CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(other, device[1], half, streams[1]),
              CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    both.push_back(GigabytesPerS(bytes, NowNs() - began));
  }
  Figure(kind + "_to_device_GBps", Median(in));
  Figure(kind + "_to_host_GBps", Median(out));
  Figure(kind + "_both_ways_GBps", Median(both));
}

// Runs `work(part, bytes)` on equal parts of the memory, each in a separate
// thread; returns GB/s.
template <typename Work>
double InParts(void* memory, uint64_t bytes, int threads, Work work) {
  const uint64_t began = NowNs();
  std::vector<std::thread> running;
  const uint64_t share = bytes / threads;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back(work, static_cast<char*>(memory) + t * share, share);
  }
  for (std::thread& thread : running) thread.join();
  return GigabytesPerS(bytes, NowNs() - began);
}

void TouchPages(char* memory, uint64_t bytes) {
  auto* const begin = static_cast<volatile char*>(memory);
  for (uint64_t i = 0; i < bytes; i += 4096) begin[i] = 1;
}

double Touch(void* memory, uint64_t bytes, int threads) {
  return InParts(memory, bytes, threads, TouchPages);
}

// Maps memory like the store's, a memfd, and gives `advice` to madvise.
void* MapStoreMemory(uint64_t bytes, int advice) {
  const int fd = memfd_create("weights", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(memory, MAP_FAILED);
  close(fd);
  madvise(memory, bytes, advice);
  return memory;
}

CONFORMANCE_TEST(HostMemory, PageableThenRegistered) {
  const Session gpu;
  const uint64_t bytes = BytesToMove(gpu);
  Figure("moved_MiB", static_cast<double>(bytes / kMiB));
  void* const memory = MapStoreMemory(bytes, MADV_NORMAL);
  Figure("touch_by_1_thread_GBps", Touch(memory, bytes, 1));
  MeasureCopies("pageable", gpu, memory, bytes);
  if (Cuda().cuMemHostRegister_v2 == nullptr) {
    GTEST_SKIP() << "this driver registers no memory";
  }
  Timed pin, unpin;
  ASSERT_EQ(pin([&] { return Cuda().cuMemHostRegister_v2(memory, bytes, 0); }),
            CUDA_SUCCESS);
  Figure("register_GBps",
         GigabytesPerS(bytes, static_cast<uint64_t>(pin.total_ms() * 1e6)));
  MeasureCopies("registered", gpu, memory, bytes);
  ASSERT_EQ(unpin([&] { return Cuda().cuMemHostUnregister(memory); }),
            CUDA_SUCCESS);
  Figure("unregister_ms", unpin.total_ms());
}

CONFORMANCE_TEST(HostMemory, HugePagesRegistered) {
  const Session gpu;
  if (Cuda().cuMemHostRegister_v2 == nullptr) {
    GTEST_SKIP() << "this driver registers no memory";
  }
  const uint64_t bytes = BytesToMove(gpu);
  void* const memory = MapStoreMemory(bytes, MADV_HUGEPAGE);
  Figure("huge_touch_by_8_threads_GBps", Touch(memory, bytes, 8));
  Timed pin;
  ASSERT_EQ(pin([&] { return Cuda().cuMemHostRegister_v2(memory, bytes, 0); }),
            CUDA_SUCCESS);
  Figure("huge_register_GBps",
         GigabytesPerS(bytes, static_cast<uint64_t>(pin.total_ms() * 1e6)));
  MeasureCopies("huge_registered", gpu, memory, bytes);
}

// Makes memory as the store could: with several threads, and with an error if
// the host has no memory left.
CONFORMANCE_TEST(HostMemory, MadeAndRegisteredInParts) {
  const Session gpu;
  const uint64_t bytes = BytesToMove(gpu);
  const int fd = memfd_create("weights", MFD_CLOEXEC);
  uint64_t began = NowNs();
  ASSERT_EQ(posix_fallocate(fd, 0, static_cast<off_t>(bytes)), 0);
  Figure("fallocate_GBps", GigabytesPerS(bytes, NowNs() - began));
  close(fd);
  void* const memory = MapStoreMemory(bytes, MADV_NORMAL);
  std::atomic<int> failures{0};
  Figure("populate_by_8_threads_GBps",
         InParts(memory, bytes, 8, [&](char* part, uint64_t part_bytes) {
           failures += madvise(part, part_bytes, MADV_POPULATE_WRITE) != 0;
         }));
  Figure("populates_that_failed", failures);
  if (Cuda().cuMemHostRegister_v2 == nullptr) {
    GTEST_SKIP() << "this driver registers no memory";
  }
  failures = 0;
  Figure("register_by_8_threads_GBps",
         InParts(memory, bytes, 8, [&](char* part, uint64_t part_bytes) {
           failures +=
               Cuda().cuCtxSetCurrent(gpu.context()) != CUDA_SUCCESS ||
               Cuda().cuMemHostRegister_v2(part, part_bytes, 0) != CUDA_SUCCESS;
         }));
  EXPECT_EQ(failures, 0);
  MeasureCopies("parts", gpu, memory, bytes / 8);
}

// Host memory that the driver allocates, exportable like device memory.
CONFORMANCE_TEST(HostMemory, OfTheDriver) {
  const Session gpu;
  CUmemAllocationProp prop = DeviceMemoryProperties();
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  size_t unit = 0;
  if (Cuda().cuMemGetAllocationGranularity(
          &unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS) {
    GTEST_SKIP() << "this driver has no memory on the host's nodes";
  }
  const uint64_t bytes = BytesToMove(gpu) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  Timed create, access, exported;
  const CUresult made =
      create([&] { return Cuda().cuMemCreate(&handle, bytes, &prop, 0); });
  if (made != CUDA_SUCCESS) {
    GTEST_SKIP() << "cuMemCreate on node 0 of the host: error " << made;
  }
  Figure("drivers_create_GBps",
         GigabytesPerS(bytes, static_cast<uint64_t>(create.total_ms() * 1e6)));
  CUdeviceptr range = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&range, bytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemMap(range, bytes, 0, handle, 0), CUDA_SUCCESS);
  const CUmemAccessDesc who[] = {
      {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  ASSERT_EQ(access([&] { return Cuda().cuMemSetAccess(range, bytes, who, 2); }),
            CUDA_SUCCESS);
  Figure("set_access_ms", access.total_ms());
  void* const memory = reinterpret_cast<void*>(range);  // NOLINT: as documented
  Figure("drivers_touch_by_8_threads_GBps", Touch(memory, bytes, 8));
  MeasureCopies("drivers", gpu, memory, bytes);
  int fd = -1;
  EXPECT_EQ(exported([&] {
              return Cuda().cuMemExportToShareableHandle(
                  &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
            }),
            CUDA_SUCCESS);
  Figure("export_us", exported.mean_us());
}

// An eviction of weights that did not change costs this pass.
CONFORMANCE_TEST(FingerprintPass, OfManyAllocations) {
  const Session gpu;
  const char* const real = getenv("FINESERVE_LIBCUDA");
  auto driver =
      Driver::Load(real != nullptr ? real : EmulatedLibrary("libcuda.so.1"));
  ASSERT_TRUE(driver.ok()) << driver.status();
  Timed load;
  const uint64_t free_before = gpu.FreeBytes();
  auto kernel = load([&] { return kernels::FingerprintKernel::Load(*driver); });
  if (absl::IsNotFound(kernel.status())) GTEST_SKIP() << kernel.status();
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const uint64_t bytes = BytesToMove(gpu);
  const uint64_t piece = bytes / 64;
  const CUdeviceptr memory = gpu.NewMapping(bytes);
  const CUdeviceptr digests = Allocate(64 * 16);
  std::vector<kernels::ByteRange> ranges;
  for (int i = 0; i < 64; ++i) ranges.push_back({memory + i * piece, piece});
  std::vector<double> speeds;
  for (int i = 0; i <= kMoveRounds; ++i) {
    const uint64_t began = NowNs();
    const absl::Status status = kernel->Launch(ranges, digests, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    if (i > 0) speeds.push_back(GigabytesPerS(bytes, NowNs() - began));
    if (i == 0) {
      Figure("first_launch_ms", static_cast<double>(NowNs() - began) / 1e6);
    }
  }
  Figure("load_ms", load.total_ms());
  Figure("taken_by_the_kernel_MiB",
         static_cast<double>(free_before - gpu.FreeBytes() - bytes) / kMiB);
  Figure("fingerprint_GBps", Median(speeds));
}

// An evicted engine leaves at least a process with a context on the GPU.
CONFORMANCE_TEST(Remains, OfAContext) {
  Peer holder([](Channel& channel) {
    if (channel.Receive() == 0) HoldContext(channel);
  });
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  holder.channel().Send(0);
  holder.channel().Receive();
  const uint64_t after = gpu.FreeBytes();
  Figure("context_MiB", static_cast<double>(before - after) / kMiB);
}

// Holds memory for the driver's own checkpoint, in which the whole process
// leaves the GPU and comes back.
void HoldMemory(Channel& channel) {
  const Session gpu;
  const uint64_t bytes = BytesToMove(gpu);
  const CUdeviceptr memory = gpu.NewMapping(bytes);
  gpu.Write(memory, 0x600d);
  channel.Send(bytes);
  channel.Receive();
  EXPECT_EQ(gpu.Read(memory), 0x600du);
  channel.Send(0);
}

CONFORMANCE_TEST(DriversCheckpoint, OfOneProcess) {
  Peer holder(HoldMemory);
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  const auto find = [](const char* name) {
    return reinterpret_cast<CUresult (*)(int, void*)>(
        dlsym(DriverLibrary(), name));
  };
  const auto lock = find("cuCheckpointProcessLock");
  const auto checkpoint = find("cuCheckpointProcessCheckpoint");
  const auto restore = find("cuCheckpointProcessRestore");
  const auto unlock = find("cuCheckpointProcessUnlock");
  const uint64_t bytes = holder.channel().Receive();
  if (lock == nullptr || restore == nullptr) {
    holder.channel().Send(0);
    holder.channel().Receive();
    GTEST_SKIP() << "this driver has no cuCheckpoint (CUDA < 12.8)";
  }
  Timed out, in;
  const CUresult locked = lock(holder.pid(), nullptr);
  if (locked != CUDA_SUCCESS) {
    GTEST_SKIP() << "cuCheckpointProcessLock: error " << locked;
  }
  const CUresult left = out([&] { return checkpoint(holder.pid(), nullptr); });
  if (left != CUDA_SUCCESS) {
    unlock(holder.pid(), nullptr);
    GTEST_SKIP() << "cuCheckpointProcessCheckpoint: error " << left;
  }
  EXPECT_EQ(in([&] { return restore(holder.pid(), nullptr); }), CUDA_SUCCESS);
  EXPECT_EQ(unlock(holder.pid(), nullptr), CUDA_SUCCESS);
  Figure("moved_MiB", static_cast<double>(bytes / kMiB));
  Figure("checkpoint_ms", out.total_ms());
  Figure("restore_ms", in.total_ms());
  holder.channel().Send(0);
  EXPECT_EQ(holder.channel().Receive(), 0u);
  holder.Join();
}

}  // namespace
}  // namespace fineserve::gpu
