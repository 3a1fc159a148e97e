#include "tools/lab/device/machine/device_list.h"

#include <utility>

namespace fineserve::emucuda {

std::optional<DeviceList> DeviceList::Open(const StateFolder& folder,
                                           const Settings& settings,
                                           const std::vector<int>& numbers,
                                           std::string* complaint) {
  DeviceList list;
  for (const int number : numbers) {
    auto memory = PhysicalMemory::Open(folder, number, settings.memory_bytes,
                                       settings.poison, settings.mps_server,
                                       !settings.not_persistent);
    auto link = settings.link_bytes_per_s == 0
                    ? nullptr
                    : HostLink::Open(folder, number, settings.link_bytes_per_s);
    const bool has_link = link != nullptr || settings.link_bytes_per_s == 0;
    if (memory == nullptr || !has_link) {
      *complaint = "emucuda: the files of device " + std::to_string(number) +
                   " in " + settings.folder + " cannot be opened or sized";
      return std::nullopt;
    }
    list.devices_.push_back({number, folder.DeviceUuid(number),
                             std::move(memory), std::move(link)});
  }
  return list;
}

std::optional<int> DeviceList::Find(const Uuid& uuid) const {
  for (int ordinal = 0; ordinal < count(); ++ordinal) {
    if (devices_[ordinal].uuid == uuid) return ordinal;
  }
  return std::nullopt;
}

}  // namespace fineserve::emucuda
