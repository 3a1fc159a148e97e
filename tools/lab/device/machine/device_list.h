#ifndef TOOLS_LAB_DEVICE_MACHINE_DEVICE_LIST_H_
#define TOOLS_LAB_DEVICE_MACHINE_DEVICE_LIST_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lab/device/machine/environment_settings.h"
#include "tools/lab/device/machine/host_link.h"
#include "tools/lab/device/machine/physical_memory.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

struct Device {
  int number = 0;  // in the machine; the place in the list is the ordinal
  Uuid uuid = {};
  std::unique_ptr<PhysicalMemory> memory;
  std::unique_ptr<HostLink> link;  // null: copies take no time of it
};

// The machine's devices that a process has opened, by ordinal. Immutable once
// opened, and therefore thread-safe.
class DeviceList {
 public:
  DeviceList() = default;

  // Opens the devices with these numbers. Returns nullopt, and sets a one-line
  // complaint, if the files of a device cannot be opened or sized.
  static std::optional<DeviceList> Open(const StateFolder& folder,
                                        const Settings& settings,
                                        const std::vector<int>& numbers,
                                        std::string* complaint);

  int count() const { return static_cast<int>(devices_.size()); }
  bool Has(int ordinal) const { return ordinal >= 0 && ordinal < count(); }
  const Device& operator[](int ordinal) const { return devices_[ordinal]; }
  PhysicalMemory& memory(int ordinal) const {
    return *devices_[ordinal].memory;
  }
  // Returns the ordinal of the device with that UUID, if there is one.
  std::optional<int> Find(const Uuid& uuid) const;

  std::vector<Device>::const_iterator begin() const { return devices_.begin(); }
  std::vector<Device>::const_iterator end() const { return devices_.end(); }

 private:
  std::vector<Device> devices_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_DEVICE_LIST_H_
