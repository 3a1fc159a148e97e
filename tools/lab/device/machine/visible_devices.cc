#include "tools/lab/device/machine/visible_devices.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>

namespace fineserve::emucuda {
namespace {

constexpr std::string_view kUuidPrefix = "GPU-";

// Returns all devices in the order in which the driver counts them.
std::vector<int> InOrder(const Settings& settings) {
  std::vector<int> order(static_cast<size_t>(settings.devices));
  std::iota(order.begin(), order.end(), 0);
  if (settings.reversed_order) std::reverse(order.begin(), order.end());
  return order;
}

// Returns -1 if there is none.
int DeviceNamed(std::string_view word, const std::vector<int>& order,
                const StateFolder& folder) {
  for (size_t n = 0; n < order.size(); ++n) {
    const int i = order[n];
    if (ParseNumber(word, 0, kMaxDevices) == n) return i;
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
  const std::vector<int> order = InOrder(settings);
  if (!settings.visible_devices) return order;
  std::vector<int> visible;
  std::string_view rest = *settings.visible_devices;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const int device = DeviceNamed(rest.substr(0, comma), order, folder);
    // An entry that repeats a device also ends the list.
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
