#ifndef DAEMON_FINESERVED_BACKING_FIND_DEVICE_H_
#define DAEMON_FINESERVED_BACKING_FIND_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/driver/driver.h"

namespace fineserve::backing {

// The facts that a daemon knows about its GPU. Plain value.
struct Device {
  driver::CUdevice ordinal = 0;
  uint8_t uuid[16] = {};
  std::string name;
  bool emulated = false;
  uint64_t total_bytes = 0;
  uint64_t granularity = 0;  // bytes; of exportable allocations
};

// The operator's choice: "3", "GPU-8f0c…" (or an unambiguous prefix),
// "emulated" or "emulated:1". `emulated_folder` contains the emulated driver's
// libraries; the program finds it from its own path.
struct DeviceChoice {
  std::string gpu;
  std::string emulated_folder;
  bool emulated() const { return gpu.rfind("emulated", 0) == 0; }
  // Returns the library to load: libcuda.so.1, real or emulated.
  std::string DriverLibrary() const;
  // Its NVML.
  std::string NvmlLibrary() const;
};

// Says which of the driver's device nodes below `folder` this process cannot
// open, why, and the remedy; empty if it can open all. cuInit does not say
// which node is missing.
std::string NodeTrouble(const std::string& folder = "/dev");

// True if `device` can access the memory of the GPU with this UUID, and the
// driver shows that GPU to this process. Any thread.
bool ReadsPeer(const driver::Driver& driver, driver::CUdevice device,
               const std::string& peer_uuid);

// Finds the chosen GPU, with numbers in the driver's order, and checks that it
// has what a pool needs: virtual memory management, export as POSIX
// descriptors, and room for more than one process. InvalidArgument if there is
// no such GPU (the message lists those that exist), FailedPrecondition if it
// lacks something.
absl::StatusOr<Device> FindDevice(const driver::Driver& driver,
                                  const DeviceChoice& choice);

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_FIND_DEVICE_H_
