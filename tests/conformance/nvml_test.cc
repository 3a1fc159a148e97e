// The emulated NVML: which processes use the device, and how much of it.

#include "tests/conformance/nvml.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::conformance {
namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialised = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

struct MemoryInfo {
  unsigned long long total, free, used;
};

void* FirstDevice() {
  void* device = nullptr;
  EXPECT_EQ(Nvml<int()>("nvmlInit_v2")(), kSuccess);
  EXPECT_EQ(
      Nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(0, &device),
      kSuccess);
  return device;
}

std::vector<pid_t> Clients(
    void* device,
    const char* symbol = "nvmlDeviceGetComputeRunningProcesses_v3") {
  const auto list = Nvml<int(void*, unsigned*, ProcessInfo*)>(symbol);
  unsigned count = 64;
  ProcessInfo processes[64];
  EXPECT_EQ(list(device, &count, processes), kSuccess);
  std::vector<pid_t> pids;
  for (unsigned i = 0; i < count; ++i) {
    pids.push_back(static_cast<pid_t>(processes[i].pid));
  }
  return pids;
}

std::string UuidOfDriver() {
  CUuuid uuid = {};
  EXPECT_EQ(Cuda().cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char byte[8];
    snprintf(byte, sizeof(byte), "%s%02x",
             i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
             static_cast<unsigned char>(uuid.bytes[i]));
    text += byte;
  }
  return text;
}

CONFORMANCE_TEST(Nvml, AsksForInitialisation) {
  unsigned count = 0;
  EXPECT_EQ(Nvml<int(unsigned*)>("nvmlDeviceGetCount_v2")(&count),
            kUninitialised);
  EXPECT_EQ(Nvml<int()>("nvmlShutdown")(), kUninitialised);
  EXPECT_EQ(Nvml<int()>("nvmlInit_v2")(), kSuccess);
  EXPECT_EQ(Nvml<int(unsigned*)>("nvmlDeviceGetCount_v2")(&count), kSuccess);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(Nvml<int()>("nvmlShutdown")(), kSuccess);
}

CONFORMANCE_TEST(Nvml, UuidIsTheDrivers) {
  const Session gpu;
  void* const device = FirstDevice();
  char uuid[96] = "";
  EXPECT_EQ(Nvml<int(void*, char*, unsigned)>("nvmlDeviceGetUUID")(
                device, uuid, sizeof(uuid)),
            kSuccess);
  EXPECT_EQ(uuid, UuidOfDriver());
  void* found = nullptr;
  const auto by_uuid =
      Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
  EXPECT_EQ(by_uuid(uuid, &found), kSuccess);
  EXPECT_EQ(found, device);
  EXPECT_EQ(by_uuid("GPU-none", &found), kNotFound);
}

CONFORMANCE_TEST(Nvml, VersionIsTheDrivers) {
  FirstDevice();
  int nvml_version = 0, version = 1;
  EXPECT_EQ(Nvml<int(int*)>("nvmlSystemGetCudaDriverVersion_v2")(&nvml_version),
            kSuccess);
  EXPECT_EQ(Cuda().cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(nvml_version, version);
}

CONFORMANCE_TEST(Nvml, MemoryIsThatOfAllProcesses) {
  const Session gpu;
  void* const device = FirstDevice();
  const auto memory = Nvml<int(void*, MemoryInfo*)>("nvmlDeviceGetMemoryInfo");
  MemoryInfo before = {}, after = {};
  ASSERT_EQ(memory(device, &before), kSuccess);
  gpu.Create(64 * kMiB);
  ASSERT_EQ(memory(device, &after), kSuccess);
  EXPECT_EQ(after.used, before.used + 64 * kMiB);
  EXPECT_EQ(after.free, gpu.FreeBytes());
  EXPECT_EQ(after.total, gpu.TotalBytes());
}

CONFORMANCE_TEST(Nvml, ListsProcessesWithAContext) {
  void* const device = FirstDevice();
  EXPECT_TRUE(Clients(device).empty()) << "NVML itself is not a client";
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  EXPECT_TRUE(Clients(device).empty()) << "cuInit touches no device";
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_TRUE(Clients(device).empty()) << "memory is no context";
  CUcontext context = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Clients(device), std::vector<pid_t>{getpid()});
  ASSERT_EQ(Cuda().cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_TRUE(Clients(device).empty()) << "its last context is gone";
}

CONFORMANCE_TEST(Nvml, ListsAnMpsServerInsteadOfItsClients) {
  setenv("EMUCUDA_MPS_SERVER", "4711", 1);
  const Session gpu;
  void* const device = FirstDevice();
  EXPECT_EQ(Clients(device), std::vector<pid_t>{4711});
  EXPECT_EQ(Clients(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
            std::vector<pid_t>{getpid()});
}

CONFORMANCE_TEST(Nvml, ListsCanBeCutWithoutAWord) {
  setenv("EMUCUDA_NVML_MOST_LISTED", "0", 1);
  const Session gpu;
  EXPECT_TRUE(Clients(FirstDevice()).empty());
}

CONFORMANCE_TEST(Nvml, ListsNameStrangers) {
  setenv("EMUCUDA_NVML_STRANGERS", "3", 1);
  setenv("EMUCUDA_NVML_MOST_LISTED", "3", 1);
  const Session gpu;
  const std::vector<pid_t> listed = Clients(FirstDevice());
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[0], getpid());
}

// Runs a client with pid 2 in a new pid namespace, with a child that keeps the
// client listed after its death. They end with this process.
void RunClientInNamespace(Channel& channel) {
  if (unshare(CLONE_NEWPID) != 0) return channel.Send(0);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0) {
      channel.Receive();
      const Session gpu;
      EXPECT_EQ(Clients(FirstDevice()), std::vector<pid_t>{2});
      if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0) channel.Send(1);
    }
  } else {
    channel.Send(1);
  }
  for (;;) pause();
}

CONFORMANCE_TEST(Nvml, ListsProcessesByThePidsOfItsCallersNamespace) {
  Peer contained(RunClientInNamespace);
  if (contained.channel().Receive() == 0) {
    GTEST_SKIP() << "no pid namespaces without root";
  }
  const Session gpu;
  void* const device = FirstDevice();
  contained.channel().Send(0);
  contained.channel().Receive();
  std::vector<pid_t> listed = Clients(device);
  std::erase(listed, getpid());
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(kill(listed[0], SIGKILL), 0);
  EXPECT_TRUE(process::Eventually([&] { return kill(listed[0], 0) != 0; }));
  EXPECT_EQ(Clients(device), (std::vector<pid_t>{getpid(), listed[0]}));
  contained.Kill();
  EXPECT_TRUE(process::Eventually([&] { return Clients(device).size() == 1; }));
}

CONFORMANCE_TEST(Nvml, ListsCanBeForbidden) {
  setenv("EMUCUDA_NVML_LIST_ERROR", "4", 1);
  const Session gpu;
  unsigned count = 4;
  ProcessInfo processes[4];
  const auto list = Nvml<int(void*, unsigned*, ProcessInfo*)>(
      "nvmlDeviceGetComputeRunningProcesses_v3");
  EXPECT_EQ(list(FirstDevice(), &count, processes), 4);
}

CONFORMANCE_TEST(Nvml, SaysHowADeviceIsSetUp) {
  setenv("EMUCUDA_COMPUTE_MODE", "exclusive", 1);
  setenv("EMUCUDA_PERSISTENCE", "off", 1);
  setenv("EMUCUDA_MIG", "instance", 1);
  const Session gpu;
  void* const device = FirstDevice();
  int persistent = 1, nvml_mode = 0, mode = 0;
  EXPECT_EQ(Nvml<int(void*, int*)>("nvmlDeviceGetPersistenceMode")(device,
                                                                   &persistent),
            kSuccess);
  EXPECT_EQ(persistent, 0);
  EXPECT_EQ(
      Nvml<int(void*, int*)>("nvmlDeviceGetComputeMode")(device, &nvml_mode),
      kSuccess);
  Cuda().cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0);
  EXPECT_EQ(mode, 3);
  EXPECT_EQ(nvml_mode, mode);
  void* found = nullptr;
  const auto by_uuid =
      Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
  EXPECT_EQ(by_uuid(UuidOfDriver().c_str(), &found), kNotFound);
  EXPECT_EQ(by_uuid(("MIG" + UuidOfDriver().substr(3)).c_str(), &found),
            kSuccess);
}

CONFORMANCE_TEST(Nvml, ExclusiveDeviceHasRoomForOneProcess) {
  setenv("EMUCUDA_COMPUTE_MODE", "exclusive", 1);
  Peer first([](Channel& channel) {
    const Session gpu;
    channel.Send(0);
    channel.Receive();  // until killed
  });
  first.channel().Receive();
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  EXPECT_EQ(static_cast<int>(Cuda().cuDevicePrimaryCtxRetain(&context, 0)), 46);
  first.Kill();
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Nvml, TooSmallListNamesTheSizeItNeeds) {
  const Session gpu;
  unsigned count = 0;
  const auto list = Nvml<int(void*, unsigned*, ProcessInfo*)>(
      "nvmlDeviceGetComputeRunningProcesses_v3");
  EXPECT_EQ(list(FirstDevice(), &count, nullptr), kInsufficientSize);
  EXPECT_EQ(count, 1u);
}

// PyTorch still calls the first version.
CONFORMANCE_TEST(Nvml, OldProcessListHasTheSameProcesses) {
  const Session gpu;
  struct OldProcessInfo {
    unsigned pid;
    unsigned long long used_bytes;
  } processes[4];
  unsigned count = 4;
  const auto list = Nvml<int(void*, unsigned*, OldProcessInfo*)>(
      "nvmlDeviceGetComputeRunningProcesses");
  EXPECT_EQ(list(FirstDevice(), &count, processes), kSuccess);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(processes[0].pid, static_cast<unsigned>(getpid()));
}

CONFORMANCE_TEST(Nvml, DeviceIsFoundByTheDriversBusId) {
  const Session gpu;
  void* const device = FirstDevice();
  char bus_id[32] = "";
  ASSERT_EQ(Cuda().cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0),
            CUDA_SUCCESS);
  const auto by_bus_id =
      Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  void* found = nullptr;
  EXPECT_EQ(by_bus_id(bus_id, &found), kSuccess);
  EXPECT_EQ(found, device);
  EXPECT_EQ(by_bus_id((std::string("0000") + bus_id).c_str(), &found),
            kSuccess);
  EXPECT_EQ(by_bus_id("0000:7f:00.0", &found), kNotFound);
  EXPECT_EQ(by_bus_id("nowhere", &found), kNotFound);
}

// vLLM and other engines identify the device by NVML before they create a
// context.
CONFORMANCE_TEST(Nvml, DescribesTheDriversDevice) {
  setenv("EMUCUDA_COMPUTE_CAPABILITY", "89", 1);
  const Session gpu;
  EXPECT_EQ(Nvml<int(unsigned)>("nvmlInitWithFlags")(0), kSuccess);
  void* const device = FirstDevice();
  char name[96] = "", driver_name[96] = "";
  const auto get_name = Nvml<int(void*, char*, unsigned)>("nvmlDeviceGetName");
  EXPECT_EQ(get_name(device, name, 3), kInsufficientSize);
  EXPECT_EQ(get_name(device, name, sizeof(name)), kSuccess);
  EXPECT_EQ(Cuda().cuDeviceGetName(driver_name, sizeof(driver_name), 0),
            CUDA_SUCCESS);
  EXPECT_STREQ(name, driver_name);
  int major = 0, minor = -1, driver_major = 0, driver_minor = -1;
  EXPECT_EQ(Nvml<int(void*, int*, int*)>("nvmlDeviceGetCudaComputeCapability")(
                device, &major, &minor),
            kSuccess);
  Cuda().cuDeviceGetAttribute(&driver_major,
                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  Cuda().cuDeviceGetAttribute(&driver_minor,
                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  EXPECT_EQ(major, driver_major);
  EXPECT_EQ(minor, driver_minor);
  EXPECT_EQ(10 * major + minor, 89);
  unsigned index = 7;
  EXPECT_EQ(Nvml<int(void*, unsigned*)>("nvmlDeviceGetIndex")(device, &index),
            kSuccess);
  EXPECT_EQ(index, 0u);
}

CONFORMANCE_TEST(Nvml, PciInfoNamesTheBusThatFindsTheDevice) {
  struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  } pci = {};
  void* const device = FirstDevice();
  EXPECT_EQ(Nvml<int(void*, void*)>("nvmlDeviceGetPciInfo_v3")(device, &pci),
            kSuccess);
  const auto by_bus_id =
      Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  for (const char* text : {pci.bus_id, pci.legacy_bus_id}) {
    void* found = nullptr;
    EXPECT_EQ(by_bus_id(text, &found), kSuccess) << text;
    EXPECT_EQ(found, device) << text;
  }
  EXPECT_EQ(pci.bus, 1u);
}

CONFORMANCE_TEST(Nvml, LinksThatAreNotThereAreNotSupported) {
  const Session gpu;
  void* const device = FirstDevice();
  int type = 0;
  const auto link_type =
      Nvml<int(void*, unsigned, int*)>("nvmlDeviceGetNvLinkRemoteDeviceType");
  EXPECT_EQ(link_type(device, 0, &type), kNotSupported);
  EXPECT_EQ(link_type(device, 0, nullptr), kInvalidArgument);
}

CONFORMANCE_TEST(Nvml, NoDeviceIsCutIntoMigInstances) {
  const Session gpu;
  void* const device = FirstDevice();
  const auto mig_mode =
      Nvml<int(void*, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
  unsigned current = 1, pending = 1;
  EXPECT_EQ(mig_mode(device, &current, &pending), kSuccess);
  EXPECT_EQ(current, 0u);
  EXPECT_EQ(pending, 0u);
  EXPECT_EQ(mig_mode(device, &current, nullptr), kInvalidArgument);
  EXPECT_EQ(mig_mode(device, nullptr, &pending), kInvalidArgument);
}

CONFORMANCE_TEST(Nvml, KilledProcessLeavesTheList) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    channel.Send(0);
    channel.Receive();  // until killed
  });
  peer.channel().Receive();
  void* const device = FirstDevice();
  EXPECT_EQ(Clients(device), std::vector<pid_t>{peer.pid()});
  peer.Kill();
  EXPECT_TRUE(Clients(device).empty());
}

// Like NVIDIA's deferred teardown: a process that is dead may still be listed.
CONFORMANCE_TEST(Nvml, ForkedChildKeepsItsDeadParentListed) {
  Peer parent([](Channel& channel) {
    const Session gpu;
    // Not a ChildProcess, because it must outlive its parent. The alarm ends it
    // if the test fails.
    if (fork() == 0) {
      alarm(300);
      channel.Send(static_cast<uint64_t>(getpid()));
      pause();
    }
    pause();
  });
  const pid_t child = static_cast<pid_t>(parent.channel().Receive());
  const pid_t dead = parent.pid();
  parent.Kill();
  void* const device = FirstDevice();
  EXPECT_EQ(Clients(device), std::vector<pid_t>{dead});
  kill(child, SIGKILL);
  while (!Clients(device).empty()) sched_yield();  // bounded by the alarm
}

}  // namespace
}  // namespace fineserve::conformance
