#include "daemon/config/fleet_path.h"

#include <filesystem>
#include <system_error>

namespace fineserve::config {

std::string FleetPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

bool IsSameFleet(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

}  // namespace fineserve::config
