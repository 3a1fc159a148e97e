#include "tools/lab/process/linger_helpers.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace fineserve::process {

std::vector<pid_t> LingerHelpers(const std::string& device_folder) {
  std::vector<pid_t> helpers;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::string name;
    std::getline(std::ifstream(process.path() / "comm"), name);
    if (name != "emucuda-linger") continue;
    for (const auto& fd :
         std::filesystem::directory_iterator(process.path() / "fd", ignored)) {
      const auto target = std::filesystem::read_symlink(fd.path(), ignored);
      if (target.parent_path() != device_folder) continue;
      helpers.push_back(atoi(process.path().filename().c_str()));
      break;
    }
  }
  return helpers;
}

void EndLingering(const std::string& device_folder) {
  for (const pid_t helper : LingerHelpers(device_folder)) {
    kill(helper, SIGUSR1);
  }
}

}  // namespace fineserve::process
