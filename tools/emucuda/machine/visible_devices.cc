#include "tools/emucuda/machine/visible_devices.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace fineserve::emucuda {
namespace {

constexpr std::string_view kUuidPrefix = "GPU-";

// Returns -1 if there is none.
int DeviceNamed(std::string_view word, const Settings& settings,
                const StateFolder& folder) {
  for (int i = 0; i < settings.devices; ++i) {
    if (ParseNumber(word, 0, kMaxDevices) == static_cast<uint64_t>(i)) return i;
    const std::string uuid = FormatUuid(folder.DeviceUuid(i));
    if (word.substr(0, kUuidPrefix.size()) == kUuidPrefix &&
        std::string_view(uuid).substr(0, word.size()) == word) {
      return i;
    }
  }
  return -1;
}

}  // namespace

std::vector<int> VisibleDevices(const Settings& settings,
                                const StateFolder& folder) {
  std::vector<int> visible;
  if (!settings.visible_devices) {
    for (int i = 0; i < settings.devices; ++i) visible.push_back(i);
    return visible;
  }
  std::string_view rest = *settings.visible_devices;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const int device = DeviceNamed(rest.substr(0, comma), settings, folder);
    // An entry that repeats a device ends the list, too.
    if (device < 0 ||
        std::find(visible.begin(), visible.end(), device) != visible.end()) {
      break;
    }
    visible.push_back(device);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return visible;
}

}  // namespace fineserve::emucuda
