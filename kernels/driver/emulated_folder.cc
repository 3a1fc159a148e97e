#include "kernels/driver/emulated_folder.h"

#include <limits.h>
#include <unistd.h>

namespace fineserve::driver {

std::string EmulatedFolder() {
  char path[PATH_MAX] = {};
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string prefix(path, n > 0 ? static_cast<size_t>(n) : 0);
  for (int level = 0; level < 2; ++level) {
    prefix.resize(prefix.find_last_of('/') == std::string::npos
                      ? 0
                      : prefix.find_last_of('/'));
  }
  const std::string packaged = prefix + "/" FINESERVE_PRIVATE_LIBDIR "/emucuda";
  const std::string beside = prefix + "/lib/emucuda";
  return access(beside.c_str(), F_OK) != 0 &&
                 access(packaged.c_str(), F_OK) == 0
             ? packaged
             : beside;
}

}  // namespace fineserve::driver
