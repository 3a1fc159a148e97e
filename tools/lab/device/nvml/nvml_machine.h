#ifndef TOOLS_LAB_DEVICE_NVML_NVML_MACHINE_H_
#define TOOLS_LAB_DEVICE_NVML_NVML_MACHINE_H_

// The machine behind the state folder, on which every NVML function works. It
// takes no client slot, because a process that only looks is not a client.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/control_file.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/driver_lock.h"
#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::emucuda {

// Names a device's clients by the pids that they have in this process's pid
// namespace, as NVIDIA's kernel module does for its caller. Thread-safe.
class VisiblePids {
 public:
  using Client = ControlFile::Client;

  // Returns the clients of a device that are visible from this process's
  // namespace, with their pids in it. A dead client of another namespace is
  // visible if it was visible while it lived.
  std::vector<Client> Of(int device, const std::vector<Client>& clients)
      EMUCUDA_EXCLUDES(mutex_);

 private:
  using Place = std::pair<uint64_t, uint32_t>;  // namespace, pid in it

  Mutex mutex_;
  // By device, the clients of other namespaces in the last list, with their
  // pids in this namespace.
  std::map<int, std::map<Place, uint32_t>> seen_ EMUCUDA_GUARDED_BY(mutex_);
};

enum nvmlReturn_t : unsigned {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_UNKNOWN = 999,
};

struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// usedGpuMemory counts bytes that the process has allocated. Imported memory
// counts for the process that allocated it.
struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
};

struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

// The machine as this process opened it. Open devices never move or vanish, so
// a handle (Device*) stays valid even after nvmlShutdown.
class Machine {
 public:
  static Machine& Get() {
    static Machine* const machine = new Machine;
    return *machine;
  }

  nvmlReturn_t Init();
  nvmlReturn_t Shutdown();
  bool initialised() const {
    const MutexLock lock(mutex_);
    return references_ > 0;
  }
  const DeviceList& devices() const { return devices_; }
  const Settings& settings() const { return settings_; }
  int driver_version() const { return settings_.driver_version; }
  // Returns the UUID as NVML writes it.
  std::string UuidOf(const Device& device) const {
    std::string text = FormatUuid(device.uuid);
    if (settings_.mig_instance) text.replace(0, 3, "MIG");
    return text;
  }
  VisiblePids& pids() { return pids_; }
  // Offset that NVML adds to each pid that it lists.
  unsigned pid_offset() const { return settings_.nvml_pid_offset; }
  // Waits for the time that every function is set to take, holding the driver's
  // lock.
  void Delay();

 private:
  bool OpenDevices();

  DriverLock driver_lock_;
  VisiblePids pids_;
  mutable Mutex mutex_;
  int references_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  Settings settings_;   // const after the first Init
  DeviceList devices_;  // const after the first Init
};

// Runs `body(machine)` if NVML is initialised and `argument` is given.
template <typename Body>
nvmlReturn_t Ask(const void* argument, Body body) {
  if (!Machine::Get().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (argument == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  Machine::Get().Delay();
  return body(Machine::Get());
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_NVML_NVML_MACHINE_H_
