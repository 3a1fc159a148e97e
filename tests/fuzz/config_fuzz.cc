// Fuzzes the parser with any configuration file: it returns a Config, or one
// line that names the place.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "daemon/fleet/config/config.h"
#include "tests/fuzz/target.h"

namespace {

constexpr char kEveryKey[] =
    "gpu = \"0\"\nruntime_dir = \"/run\"\nlog_level = \"info\"\n"
    "[pool]\nsize = \"16GiB\"\nplanes = 4\nslab = \"32MiB\"\n"
    "[[engine]]\nname = \"a-*\"\nkv_sizes = [\"1GiB\", \"5\"]\n"
    "[[rule]]\nname = \"r\"\nengine = \"a*\"\nframes = [\"f\", \"a::~a\"]\n"
    "module = \"m*.so\"\nmin_bytes = \"2MiB\"\nmax_bytes = \"1TiB\"\n"
    "kv = false\n";
constexpr char kShipped[] = "shipped_rules = [\"llama.cpp\", \"vllm-cumem\"]\n";

// Returns the path of a file in memory, because a run must not wait for a disk.
const std::string& Path() {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return path;
}

}  // namespace

std::vector<std::vector<uint8_t>> fineserve::fuzz::Seeds() {
  return {{kEveryKey, kEveryKey + sizeof(kEveryKey) - 1},
          {kShipped, kShipped + sizeof(kShipped) - 1}};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const int fd = atoi(Path().c_str() + strlen("/proc/self/fd/"));
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, bytes, count, 0) != static_cast<ssize_t>(count)) {
    abort();
  }
  const auto config = fineserve::config::ReadConfig(Path());
  if (!config.ok() &&
      config.status().message().find(Path() + ":") == std::string::npos) {
    abort();  // an error without its place
  }
  if (config.ok() && fineserve::config::RulesFor(*config, "a").size() >
                         fineserve::abi::kRuleCapacity) {
    abort();  // more than a shim takes
  }
  return 0;
}
