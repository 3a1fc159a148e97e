#include "daemon/fineserved/backing/find_device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "kernels/driver/driver_handles.h"
#include "kernels/driver/status.h"

namespace fineserve::backing {
namespace {

using driver::CUdevice;
using driver::Driver;
using driver::ToStatus;

std::string UuidText(const uint8_t (&uuid)[16]) {
  char text[41];
  abi::FormatGpuUuid(uuid, text);
  return text;
}

absl::StatusOr<Device> Describe(const Driver& driver, int ordinal,
                                bool emulated) {
  const driver::EntryPoints& call = driver.call();
  Device device;
  device.emulated = emulated;
  absl::Status s = ToStatus(call, call.cuDeviceGet(&device.ordinal, ordinal),
                            absl::StrCat("cuDeviceGet(", ordinal, ")"));
  if (!s.ok()) return s;
  driver::CUuuid uuid;
  s = ToStatus(call, call.cuDeviceGetUuid_v2(&uuid, device.ordinal),
               "cuDeviceGetUuid");
  if (!s.ok()) return s;
  memcpy(device.uuid, uuid.bytes, sizeof(device.uuid));
  char name[256] = {};
  s = ToStatus(call, call.cuDeviceGetName(name, sizeof(name), device.ordinal),
               "cuDeviceGetName");
  if (!s.ok()) return s;
  device.name = name;
  size_t bytes = 0;
  s = ToStatus(call, call.cuDeviceTotalMem_v2(&bytes, device.ordinal),
               "cuDeviceTotalMem");
  if (!s.ok()) return s;
  device.total_bytes = bytes;
  return device;
}

absl::StatusOr<std::vector<Device>> ListDevices(const Driver& driver,
                                                bool emulated) {
  int count = 0;
  const driver::EntryPoints& call = driver.call();
  absl::Status s =
      ToStatus(call, call.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (!s.ok()) return s;
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<Device> device = Describe(driver, i, emulated);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

// Returns the indices in `devices` that `wanted` names.
std::vector<size_t> Matches(const std::vector<Device>& devices,
                            absl::string_view wanted) {
  std::vector<size_t> matches;
  int ordinal = -1;
  const bool is_number = absl::SimpleAtoi(wanted, &ordinal);
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string uuid = UuidText(devices[i].uuid);
    const bool by_uuid = !wanted.empty() && finding::MeansGpu(wanted, uuid);
    if (is_number ? static_cast<int>(i) == ordinal : by_uuid) {
      matches.push_back(i);
    }
  }
  return matches;
}

absl::Status NoSuchGpu(const std::vector<Device>& devices,
                       const std::string& gpu) {
  std::vector<std::string> known;
  for (size_t i = 0; i < devices.size(); ++i) {
    known.push_back(absl::StrCat(i, " (", UuidText(devices[i].uuid), ", ",
                                 devices[i].name, ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no GPU \"", gpu, "\"; there ", known.size() == 1 ? "is " : "are ",
      known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

absl::Status RequireAttribute(const Driver& driver, const Device& device,
                              driver::CUdevice_attribute attribute,
                              absl::string_view what) {
  int value = 0;
  const driver::EntryPoints& call = driver.call();
  absl::Status s = ToStatus(
      call, call.cuDeviceGetAttribute(&value, attribute, device.ordinal),
      "cuDeviceGetAttribute");
  if (!s.ok()) return s;
  if (value != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      device.name, " cannot hold a pool: it does not support ", what));
}

// CU_COMPUTEMODE_*: in every mode but the default one, at most one process can
// use the GPU.
constexpr int kDefaultMode = 0;
constexpr int kProhibitedMode = 2;

absl::Status RequireSharing(const Driver& driver, const Device& device) {
  int mode = kDefaultMode;
  const driver::EntryPoints& call = driver.call();
  absl::Status s = ToStatus(
      call,
      call.cuDeviceGetAttribute(&mode, driver::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
                                device.ordinal),
      "cuDeviceGetAttribute");
  if (!s.ok() || mode == kDefaultMode) return s;
  return absl::FailedPreconditionError(absl::StrCat(
      device.name, " is in compute mode ",
      mode == kProhibitedMode ? "PROHIBITED" : "EXCLUSIVE_PROCESS",
      ", in which engines cannot share it with the daemon; run nvidia-smi -i ",
      UuidText(device.uuid), " -c DEFAULT"));
}

}  // namespace

std::string NodeTrouble(const std::string& folder) {
  const auto trouble = [&](const std::string& name) -> std::string {
    const std::string path = folder + "/" + name;
    if (faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0) {
      return "";
    }
    if (errno == ENOENT) {
      return path + " is missing: run nvidia-modprobe -u -c 0 as root";
    }
    if (errno == EPERM) {
      return path +
             " is kept from this control group: give the container the GPU "
             "(docker run --gpus, NVIDIA_VISIBLE_DEVICES), or the unit "
             "DeviceAllow=";
    }
    return base::WithErrno(
        absl::StrCat(path, " cannot be opened by uid ", geteuid()));
  };
  for (const char* name : {"nvidiactl", "nvidia-uvm"}) {
    const std::string found = trouble(name);
    if (!found.empty()) return found;
  }
  constexpr int kMostGpus = 64;
  std::string last;
  for (int i = 0; i < kMostGpus; ++i) {
    const std::string found = trouble(absl::StrCat("nvidia", i));
    if (found.empty()) return "";
    if (last.empty()) last = found;
  }
  return last;
}

std::string DeviceChoice::DriverLibrary() const {
  return emulated() ? emulated_folder + "/libcuda.so.1" : "libcuda.so.1";
}

std::string DeviceChoice::NvmlLibrary() const {
  return emulated() ? emulated_folder + "/libnvidia-ml.so.1"
                    : "libnvidia-ml.so.1";
}

bool ReadsPeer(const driver::Driver& driver, driver::CUdevice device,
               const std::string& peer_uuid) {
  const driver::EntryPoints& call = driver.call();
  int count = 0;
  if (call.cuDeviceCanAccessPeer == nullptr ||
      call.cuDeviceGetCount(&count) != driver::CUDA_SUCCESS) {
    return false;
  }
  for (int peer = 0; peer < count; ++peer) {
    driver::CUuuid uuid = {};
    int can = 0;
    if (call.cuDeviceGetUuid_v2(&uuid, peer) != driver::CUDA_SUCCESS) continue;
    uint8_t bytes[16];
    memcpy(bytes, &uuid, sizeof(bytes));
    if (UuidText(bytes) != peer_uuid) continue;
    return call.cuDeviceCanAccessPeer(&can, device, peer) ==
               driver::CUDA_SUCCESS &&
           can != 0;
  }
  return false;
}

absl::StatusOr<Device> FindDevice(const Driver& driver,
                                  const DeviceChoice& choice) {
  absl::StatusOr<std::vector<Device>> devices =
      ListDevices(driver, choice.emulated());
  if (!devices.ok()) return devices.status();
  absl::string_view wanted = choice.gpu;
  if (choice.emulated()) {
    absl::ConsumePrefix(&wanted, "emulated");
    if (wanted.empty()) wanted = ":0";
    if (!absl::ConsumePrefix(&wanted, ":")) {
      return NoSuchGpu(*devices, choice.gpu);
    }
  }
  const std::vector<size_t> matches = Matches(*devices, wanted);
  if (matches.size() != 1) return NoSuchGpu(*devices, choice.gpu);
  Device device = (*devices)[matches[0]];
  absl::Status s = RequireSharing(driver, device);
  if (!s.ok()) return s;
  s = RequireAttribute(
      driver, device,
      driver::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
      "virtual memory management");
  if (!s.ok()) return s;
  s = RequireAttribute(
      driver, device,
      driver::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
      "export of memory as POSIX descriptors");
  if (!s.ok()) return s;
  absl::StatusOr<uint64_t> granularity =
      driver::AllocationGranularity(driver, device.ordinal);
  if (!granularity.ok()) return granularity.status();
  device.granularity = *granularity;
  return device;
}

}  // namespace fineserve::backing
