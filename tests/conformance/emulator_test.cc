// Features of the emulated driver alone: injection, delays, the call log,
// settings from the environment. emulator_death_test.cc tests deaths.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/control.h"
#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

// Longer than any test may take.
constexpr unsigned kForEverUs = 3'600'000'000;

std::string StateFile(const char* name) {
  const char* folder = getenv("EMUCUDA_DIR");
  return std::string(folder == nullptr ? "" : folder) + "/" + name;
}

uint64_t HostBytesOf(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

CUresult TryCreate(uint64_t bytes = 2 * kMiB) {
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  return Cuda().cuMemCreate(&handle, bytes, &prop, 0);
}

CONFORMANCE_TEST(Emulator, FailureIsInjectedIntoTheNthCall) {
  setenv("EMUCUDA_FAIL", "cuMemCreate@3=2,cuMemAddressFree@*=999", 1);
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(TryCreate(), CUDA_SUCCESS);
  EXPECT_EQ(TryCreate(), CUDA_SUCCESS);
  EXPECT_EQ(TryCreate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(TryCreate(), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(0, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Cuda().cuMemAddressFree(0, 0), CUDA_ERROR_UNKNOWN);
}

CONFORMANCE_TEST(Emulator, InjectedFailureHasNoEffect) {
  const Session gpu;
  const auto used_bytes = CONTROL(emucuda_used_bytes);
  ASSERT_EQ(CONTROL(emucuda_set_failures)("cuMemCreate@1=2"), 0);
  const uint64_t before = used_bytes(0);
  EXPECT_EQ(TryCreate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used_bytes(0), before);
  EXPECT_EQ(TryCreate(), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(0), before + 2 * kMiB);
}

CONFORMANCE_TEST(Emulator, MalformedSettingsAreRefused) {
  for (const char* variable :
       {"EMUCUDA_FAIL", "EMUCUDA_LATENCY_US", "EMUCUDA_MEMORY",
        "EMUCUDA_DEVICES", "EMUCUDA_DRIVER_VERSION"}) {
    Peer peer([variable](Channel&) {
      setenv(variable, "nonsense@1", 1);
      EXPECT_EQ(Cuda().cuInit(0), CUDA_ERROR_INVALID_VALUE) << variable;
    });
    peer.Join();
  }
}

CONFORMANCE_TEST(Emulator, MalformedRulesChangeNothing) {
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  const auto set_failures = CONTROL(emucuda_set_failures);
  ASSERT_EQ(set_failures("cuMemCreate@*=2"), 0);
  EXPECT_EQ(set_failures("cuMemCreate@*"), -1);
  EXPECT_EQ(set_failures("cuNoSuch@1=2"), -1);
  EXPECT_EQ(TryCreate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_failures(nullptr), 0);
  EXPECT_EQ(TryCreate(), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Emulator, FolderOpenToOthersIsRefused) {
  ASSERT_EQ(chmod(StateFile("").c_str(), 0755), 0);
  EXPECT_EQ(Cuda().cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
}

CONFORMANCE_TEST(Emulator, FirstProcessDecidesTheSize) {
  setenv("EMUCUDA_CONTEXT_MEMORY", "0", 1);
  setenv("EMUCUDA_MEMORY", "512MiB", 1);
  Peer first([](Channel&) {
    const Session gpu;
    EXPECT_EQ(gpu.TotalBytes(), 512 * kMiB);
  });
  first.Join();
  setenv("EMUCUDA_MEMORY", "16GiB", 1);
  const Session gpu;
  EXPECT_EQ(gpu.TotalBytes(), 512 * kMiB);
  EXPECT_EQ(gpu.FreeBytes(), 512 * kMiB);
}

CONFORMANCE_TEST(Emulator, DevicesDifferByUuidAndShareNothing) {
  setenv("EMUCUDA_CONTEXT_MEMORY", "0", 1);
  setenv("EMUCUDA_DEVICES", "2", 1);
  const Session gpu;
  CUuuid first, second;
  ASSERT_EQ(Cuda().cuDeviceGetUuid_v2(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetUuid_v2(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(memcmp(&first, &second, sizeof(first)), 0);
  gpu.Create(64 * kMiB);
  const auto used_bytes = CONTROL(emucuda_used_bytes);
  EXPECT_EQ(used_bytes(0), 64 * kMiB);
  EXPECT_EQ(used_bytes(1), 0u);
}

std::string BusOf(CUdevice device) {
  char bus[32] = "";
  EXPECT_EQ(Cuda().cuDeviceGetPCIBusId(bus, sizeof(bus), device), CUDA_SUCCESS);
  return bus;
}

// Lists the devices that a process sees, in order; empty if it sees none.
std::string DevicesSeenWith(const char* visible) {
  setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  int count = 0;
  if (Cuda().cuInit(0) == CUDA_ERROR_NO_DEVICE) return "";
  EXPECT_EQ(Cuda().cuDeviceGetCount(&count), CUDA_SUCCESS);
  std::string seen;
  for (CUdevice i = 0; i < count; ++i) seen += BusOf(i).substr(5, 2) + " ";
  return seen;
}

CONFORMANCE_TEST(Emulator, VisibleDevicesAreRenumberedAndKeepTheirBus) {
  setenv("EMUCUDA_DEVICES", "3", 1);
  constexpr struct {
    const char* visible;
    const char* seen;
  } kCases[] = {{"0,1,2", "01 02 03 "},
                {"2,0", "03 01 "},
                {"1,9,0", "02 "},
                {"", ""},
                {"-1", ""},
                {"0,0,1", "01 "},
                {"GPU-", "01 "},
                {"no", ""}};
  for (const auto& c : kCases) {
    Peer peer([&](Channel&) {
      EXPECT_EQ(DevicesSeenWith(c.visible), c.seen) << c.visible;
    });
    peer.Join();
  }
}

CONFORMANCE_TEST(Emulator, VisibleDeviceIsTheSameByNumberAndByUuid) {
  setenv("EMUCUDA_DEVICES", "2", 1);
  Peer asked([&](Channel& parent) {
    ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
    CUuuid uuid;
    ASSERT_EQ(Cuda().cuDeviceGetUuid_v2(&uuid, 1), CUDA_SUCCESS);
    for (unsigned char byte : uuid.bytes) parent.Send(byte);
  });
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    snprintf(hex, sizeof(hex), "%02x",
             static_cast<unsigned>(asked.channel().Receive()));
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += "-";
  }
  asked.Join();
  EXPECT_EQ(DevicesSeenWith(text.c_str()), "02 ");
}

CONFORMANCE_TEST(Emulator, OlderDriverLacksNewerFunctions) {
  setenv("EMUCUDA_DRIVER_VERSION", "12040", 1);
  void* function = nullptr;
  EXPECT_EQ(Cuda().cuGetProcAddress_v2("cuCtxSynchronize", &function, 13000, 0,
                                       nullptr),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuGetProcAddress_v2("cuCtxSynchronize", &function, 12040, 0,
                                       nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(function, reinterpret_cast<void*>(Cuda().cuCtxSynchronize));
}

CONFORMANCE_TEST(Emulator, CallsAreCountedPerFunction) {
  const Session gpu;
  const auto call_count = CONTROL(emucuda_call_count);
  const uint64_t before = call_count("cuMemCreate");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { EXPECT_EQ(TryCreate(), CUDA_SUCCESS); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(call_count("cuMemCreate"), before + 4);
  EXPECT_EQ(call_count("cuNoSuchFunction"), 0u);
}

CONFORMANCE_TEST(Emulator, LogHasOneLinePerCall) {
  setenv("EMUCUDA_LOG", StateFile("calls.log").c_str(), 1);
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  TryCreate();
  TryCreate(1);
  std::ifstream log(StateFile("calls.log"));
  std::string pid, ns, line;
  std::vector<std::string> calls;
  while (log >> pid >> ns && std::getline(log, line)) calls.push_back(line);
  EXPECT_EQ(pid, std::to_string(getpid()));
  EXPECT_EQ(calls,
            (std::vector<std::string>{" cuInit() 0", " cuMemCreate(0x200000) 0",
                                      " cuMemCreate(0x1) 1"}));
}

CONFORMANCE_TEST(Emulator, EntryPointIsTheDriversOwn) {
  const auto entry_point = CONTROL(emucuda_entry_point);
  EXPECT_EQ(entry_point("cuMemAlloc_v2"),
            reinterpret_cast<void*>(Cuda().cuMemAlloc_v2));
  EXPECT_EQ(entry_point("cuNoSuchFunction"), nullptr);
}

CONFORMANCE_TEST(Emulator, OnlyTheDriversFunctionsAreExported) {
  void* const library = DriverLibrary();
  for (const char* symbol : {"_Znwm", "__cxa_throw", "_ZSt9terminatev"}) {
    void* const found = dlsym(library, symbol);
    Dl_info owner = {};
    if (found == nullptr || dladdr(found, &owner) == 0) continue;
    EXPECT_EQ(strstr(owner.dli_fname, "libcuda"), nullptr) << symbol;
  }
}

CONFORMANCE_TEST(Emulator, ZeroingAHugePoolCostsNoHostMemory) {
  const Session gpu;
  const uint64_t bytes = uint64_t{16} << 30;
  const CUdeviceptr address = gpu.NewMapping(bytes);
  gpu.Write(address + bytes / 2, 1);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(address, 0, bytes), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address + bytes / 2), 0u);
  EXPECT_EQ(HostBytesOf(StateFile("gpu0.memory")), 0u);
}

CONFORMANCE_TEST(Emulator, ReleasedMemoryGoesBackToTheHost) {
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(8 * kMiB);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(address, 1, 8 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(HostBytesOf(StateFile("gpu0.memory")), 8 * kMiB);
  ASSERT_EQ(Cuda().cuMemUnmap(address, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(HostBytesOf(StateFile("gpu0.memory")), 0u);
}

// Returns what a forked child reads at an address, or minus the signal that the
// read raises.
int ReadInAChild(CUdeviceptr address) {
  process::ChildProcess child([address] {
    signal(SIGSEGV, SIG_DFL);
    return int{*reinterpret_cast<volatile unsigned char*>(address)};
  });
  return child.Wait();
}

CONFORMANCE_TEST(Emulator, ForkedChildDoesNotSeeDeviceMappings) {
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  gpu.Write(address, 1);
  EXPECT_NE(ReadInAChild(address), 1);
}

// True if a system call can read a byte at this address. A fault in a system
// call is an error, not a SIGSEGV.
bool HostMayTouch(CUdeviceptr address) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool read = write(ends[1], reinterpret_cast<void*>(address), 1) == 1;
  EXPECT_TRUE(read || errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return read;
}

CONFORMANCE_TEST(Emulator, HostFaultsOnDeviceMemoryAndNotOnManaged) {
  const Session gpu;
  const CUdeviceptr mapped = gpu.NewMapping(2 * kMiB);
  CUdeviceptr allocated = 0, managed = 0;
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&allocated, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  gpu.Write(mapped, 1);
  gpu.Write(allocated, 1);
  EXPECT_FALSE(HostMayTouch(mapped));
  EXPECT_FALSE(HostMayTouch(allocated));
  EXPECT_TRUE(HostMayTouch(managed));
}

CONFORMANCE_TEST(Emulator, HostReadsMappedMemoryIfAllowedAndFaultsElsewhere) {
  setenv("EMUCUDA_HOST_ACCESS", "allow", 1);
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  gpu.Write(address, 77);
  EXPECT_EQ(*reinterpret_cast<const volatile uint32_t*>(address), 77u);
  ASSERT_EQ(Cuda().cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_FALSE(HostMayTouch(address));
}

CONFORMANCE_TEST(Emulator, FillsAreLostIfSo) {
  setenv("EMUCUDA_FILLS", "lose", 1);
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  gpu.Write(address, 77);
  EXPECT_EQ(Cuda().cuMemsetD32Async(address, 0, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(address, 0, 4), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address), 77u);
}

CONFORMANCE_TEST(Emulator, BadHostPointerKillsTheContextNotTheProcess) {
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  EXPECT_EQ(
      Cuda().cuMemcpyHtoD_v2(address, reinterpret_cast<void*>(0x10), 65536),
      CUDA_ERROR_ILLEGAL_ADDRESS);
}

// A real driver may wait for the stream first, which would deadlock on the
// gate, so only the emulated driver is tested.
CONFORMANCE_TEST(Emulator, SmallPageableSourceIsStagedBehindBusyStream) {
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  uint32_t word = 1;
  {
    Gate gate;
    ASSERT_EQ(gate.Block(nullptr), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuMemcpyHtoDAsync_v2(address, &word, 4, nullptr),
              CUDA_SUCCESS);
    word = 2;
  }
  EXPECT_EQ(gpu.Read(address), 1u);
}

CONFORMANCE_TEST(Emulator, DelayHoldsWorkBackButNotMarkers) {
  const Session gpu;
  CUstream stream = nullptr;
  CUevent before = nullptr, after = nullptr;
  const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventCreate(&before, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventCreate(&after, 0), CUDA_SUCCESS);
  CONTROL(emucuda_set_stream_delay_us)(kForEverUs);
  ASSERT_EQ(Cuda().cuEventRecord(before, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD8Async(address, 1, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(after, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventSynchronize(before), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(after), CUDA_ERROR_NOT_READY);
}

CONFORMANCE_TEST(Emulator, MappingEndsACaptureWhereCapturesAreStrict) {
  setenv("EMUCUDA_CAPTURE", "strict", 1);
  const Session gpu;
  const CUdeviceptr base = gpu.Reserve(2 * kMiB);
  const auto handle = gpu.Create(2 * kMiB);
  for (const bool relaxed : {true, false}) {
    const CUstream stream = NewStream();
    ASSERT_EQ(
        Cuda().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    CUstreamCaptureMode mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                                       : CU_STREAM_CAPTURE_MODE_GLOBAL;
    Cuda().cuThreadExchangeStreamCaptureMode(&mode);
    Cuda().cuMemMap(base, 2 * kMiB, 0, handle, 0);
    Cuda().cuThreadExchangeStreamCaptureMode(&mode);
    CUgraph graph = nullptr;
    EXPECT_EQ(Cuda().cuStreamEndCapture(stream, &graph),
              relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

CONFORMANCE_TEST(Emulator, RangeOfAliasesIsRefusedWhereTheyAreApart) {
  setenv("EMUCUDA_ALIASES", "apart", 1);
  const Session gpu;
  const CUdeviceptr base = gpu.Reserve(4 * kMiB);
  const auto handle = gpu.Create(2 * kMiB);
  const CUmemAccessDesc access =
      DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  gpu.MapAt(base, 2 * kMiB, handle);
  gpu.MapAt(base + 2 * kMiB, 2 * kMiB, handle);
  EXPECT_EQ(Cuda().cuMemSetAccess(base, 4 * kMiB, &access, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemUnmap(base, 4 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemUnmap(base, 2 * kMiB), CUDA_SUCCESS);
  gpu.MapAt(base, 2 * kMiB, gpu.Create(2 * kMiB));
  EXPECT_EQ(Cuda().cuMemUnmap(base, 4 * kMiB), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Emulator, NothingIsExportedOrBegunWhereNodesCannotBeOpened) {
  const std::string closed =
      std::string(getenv("EMUCUDA_DIR")) + "/no-new-opens";
  Peer late([](Channel& channel) {
    channel.Receive();
    EXPECT_EQ(Cuda().cuInit(0), CUDA_ERROR_NO_DEVICE);
  });
  const Session gpu;
  const auto handle = gpu.Create(2 * kMiB);
  const int exported = gpu.Export(handle);
  std::ofstream(closed).close();
  int again = -1;
  EXPECT_EQ(Cuda().cuMemExportToShareableHandle(
                &again, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_NE(gpu.Import(exported), 0u) << "what is open works on";
  late.channel().Send(0);
  late.Join();
}

}  // namespace
}  // namespace fineserve::conformance
