#include "tests/gpu/machine.h"

#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/socket_path.h"
#include "daemon/backing/find_device.h"
#include "kernels/driver/driver.h"

namespace fineserve::gpu {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The rest of the first line of `path` that begins with `key`, after its colon.
std::string Field(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

// "NVRM version: NVIDIA UNIX … Kernel Module  580.65.06  …": the first word
// that begins with a digit.
std::string KernelModule() {
  std::ifstream in("/proc/driver/nvidia/version");
  for (std::string word; in >> word;) {
    if (!word.empty() && word[0] >= '0' && word[0] <= '9') return word;
  }
  return "unknown kernel module";
}

std::string System() {
  utsname name = {};
  uname(&name);
  return absl::StrCat(name.sysname, " ", name.release, ", glibc ",
                      gnu_get_libc_version(), ", ",
                      sysconf(_SC_NPROCESSORS_ONLN), " CPUs (",
                      Field("/proc/cpuinfo", "model name"), ")");
}

// gVisor's kernel calls itself by this one date, always.
bool InGvisor() {
  return FirstLine("/proc/version").find("Sun Jan 10 15:06:54 PST 2016") !=
         std::string::npos;
}

std::string Sandbox() {
  std::vector<std::string> signs;
  if (InGvisor()) signs.push_back("gVisor");
  if (FirstLine("/proc/version").find("icrosoft") != std::string::npos) {
    signs.push_back("WSL");
  }
  const std::string flags = Field("/proc/cpuinfo", "flags");
  if (absl::StrCat(" ", flags, " ").find(" hypervisor ") != std::string::npos) {
    const std::string maker = FirstLine("/sys/class/dmi/id/sys_vendor");
    signs.push_back(maker.empty()
                        ? "virtual machine"
                        : absl::StrCat("virtual machine (", maker, ")"));
  }
  const std::string group = FirstLine("/proc/1/cgroup");
  if (access("/.dockerenv", F_OK) == 0 ||
      access("/run/.containerenv", F_OK) == 0 ||
      group.find("docker") != std::string::npos ||
      group.find("kubepods") != std::string::npos) {
    signs.push_back("container");
  }
  if (Field("/proc/self/status", "Seccomp:") == "2") {
    signs.push_back("system calls filtered (seccomp)");
  }
  return signs.empty() ? "none seen" : absl::StrJoin(signs, ", ");
}

std::string Commit(const std::string& prefix) {
  std::ifstream in(prefix + "/VERSION");
  std::string key, value;
  while (in >> key >> value) {
    if (key == "commit") return value;
  }
  const char* given = getenv("FINESERVE_COMMIT");
  return given == nullptr ? "unknown" : given;
}

}  // namespace

absl::StatusOr<Machine> DescribeMachine(bool emulated,
                                        const std::string& prefix) {
  const backing::DeviceChoice choice = {emulated ? "emulated" : "0",
                                        prefix + "/lib/emucuda"};
  const auto driver = driver::Driver::Load(choice.DriverLibrary());
  if (!driver.ok()) return driver.status();
  const auto device = backing::FindDevice(*driver, choice);
  if (!device.ok()) return device.status();
  char bytes[abi::kByteSizeText], uuid[41];
  abi::FormatByteSize(device->total_bytes, bytes);
  abi::FormatGpuUuid(device->uuid, uuid);
  Machine machine;
  machine.gpu = absl::StrCat(device->name, ", ", bytes);
  machine.uuid = uuid;
  machine.driver = absl::StrCat(emulated ? "emulated" : KernelModule(),
                                ", CUDA ", driver->version() / 1000, ".",
                                driver->version() % 1000 / 10);
  machine.commit = Commit(prefix);
  machine.system = System();
  machine.sandbox = Sandbox();
  return machine;
}

}  // namespace fineserve::gpu
