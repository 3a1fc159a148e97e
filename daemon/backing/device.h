#ifndef DAEMON_BACKING_DEVICE_H_
#define DAEMON_BACKING_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/driver/driver.h"

namespace fineserve::backing {

// One GPU as a daemon needs to know it. Plain value.
struct Device {
  driver::CUdevice ordinal = 0;
  uint8_t uuid[16] = {};
  std::string name;
  bool emulated = false;
  uint64_t total_bytes = 0;
  uint64_t granularity = 0;  // bytes; of exportable allocations
};

// What the operator asked for: "3", "GPU-8f0c…" (or an unambiguous prefix of
// it), "emulated" or "emulated:1". Where the emulated driver's libraries lie
// is told apart, because only the program knows its own place.
struct DeviceChoice {
  std::string gpu;
  std::string emulated_folder;
  bool emulated() const { return gpu.rfind("emulated", 0) == 0; }
  // The library to load: libcuda.so.1, real or emulated.
  std::string DriverLibrary() const;
  // Its NVML.
  std::string NvmlLibrary() const;
};

// Finds the chosen GPU and checks that it can serve: VMM, and export as POSIX
// descriptors. InvalidArgument if there is no such GPU (the message lists
// those there are), FailedPrecondition if it cannot serve.
absl::StatusOr<Device> FindDevice(const driver::Driver& driver,
                                  const DeviceChoice& choice);

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_DEVICE_H_
