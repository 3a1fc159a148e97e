#ifndef TOOLS_LAB_DEVICE_MACHINE_HOST_LINK_H_
#define TOOLS_LAB_DEVICE_MACHINE_HOST_LINK_H_

#include <cstdint>
#include <memory>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

// A device's link to the host. The copies of all processes share its rate, one
// after the other, separately in each direction. gpuN.link holds two 8-byte
// times (ns of CLOCK_MONOTONIC): when the copies to the device and the copies
// to the host that have been booked so far end. A process that dies leaves the
// link booked for its last copies. Thread-safe.
class HostLink {
 public:
  enum class Way { kToDevice, kToHost };

  // Returns null if the file cannot be opened or mapped.
  static std::unique_ptr<HostLink> Open(const StateFolder& folder, int device,
                                        uint64_t bytes_per_s);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;
  ~HostLink();

  // Books the link for a copy, and returns the time at which the copy ends.
  uint64_t Book(Way way, uint64_t bytes);
  static void WaitUntil(uint64_t ns);

 private:
  struct Ends;
  HostLink(Ends* ends, uint64_t bytes_per_s)
      : ends_(ends), bytes_per_s_(bytes_per_s) {}

  Ends* const ends_;
  const uint64_t bytes_per_s_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_HOST_LINK_H_
