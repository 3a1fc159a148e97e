#include "tests/gpu/machine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/fineserved/backing/find_device.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/driver.h"

namespace fineserve::gpu {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Returns the text after the colon in the first line of `path` that begins with
// `key`.
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

// gVisor's kernel always names this build date.
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

// Says whether programs on this machine become clients of MPS, which they do if
// its control daemon's pipes are where they look for them.
std::string Mps() {
  const char* folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipes = folder == nullptr ? "/tmp/nvidia-mps" : folder;
  return access((pipes + "/control").c_str(), F_OK) == 0 ? "at " + pipes
                                                         : "none seen";
}

// As nvml.h has it.
struct ConfidentialState {
  unsigned environment, feature, tools;
};

// Asks NVML, which every driver has.
std::string Modes(const backing::DeviceChoice& choice,
                  const std::string& uuid) {
  void* library = dlopen(choice.NvmlLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "unknown: no NVML";
  const auto ask = [&](const char* name, auto... arguments) {
    const auto call =
        reinterpret_cast<int (*)(decltype(arguments)...)>(dlsym(library, name));
    return call != nullptr && call(arguments...) == 0;
  };
  void* gpu = nullptr;
  if (!ask("nvmlInit_v2") ||
      !ask("nvmlDeviceGetHandleByUUID", uuid.c_str(), &gpu)) {
    return "unknown: NVML does not know the GPU";
  }
  int persistent = 0, compute = 0;
  unsigned mig = 0, mig_next = 0;
  const auto word = [](bool known, int on) {
    return !known ? "unknown" : on != 0 ? "on" : "off";
  };
  const bool knows_persistence =
      ask("nvmlDeviceGetPersistenceMode", gpu, &persistent);
  const bool knows_compute = ask("nvmlDeviceGetComputeMode", gpu, &compute);
  const bool knows_mig = ask("nvmlDeviceGetMigMode", gpu, &mig, &mig_next);
  ConfidentialState state = {};
  const bool knows_state = ask("nvmlSystemGetConfComputeState", &state);
  return absl::StrCat(
      "persistence ", word(knows_persistence, persistent), ", compute mode ",
      knows_compute ? absl::StrCat(compute) : "unknown", ", MIG ",
      word(knows_mig, static_cast<int>(mig)), ", confidential computing ",
      word(knows_state, static_cast<int>(state.feature)), ", MPS ", Mps());
}

absl::StatusOr<Machine> AskDriver(bool emulated, const std::string& prefix) {
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
  machine.modes = Modes(choice, uuid);
  return machine;
}

// Four lines, or "error" and one.
std::string Answer(const absl::StatusOr<Machine>& asked) {
  if (!asked.ok()) return absl::StrCat("error\n", asked.status().message());
  return absl::StrJoin({asked->gpu, asked->uuid, asked->driver, asked->modes},
                       "\n");
}

// Returns what `answer` returns in a forked child.
std::string FromChild(const std::function<std::string()>& answer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const driver::Descriptor input(ends[0]);
  driver::Descriptor output(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = answer();
    (void)!write(output.get(), text.data(), text.size());
    _exit(0);
  }
  output.Reset();
  std::string text;
  char part[1024];
  for (ssize_t n; (n = read(input.get(), part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  waitpid(child, nullptr, 0);
  return text;
}

}  // namespace

absl::StatusOr<Machine> DescribeMachine(bool emulated,
                                        const std::string& prefix) {
  const std::string answer =
      FromChild([&] { return Answer(AskDriver(emulated, prefix)); });
  const std::vector<std::string> lines = absl::StrSplit(answer, '\n');
  if (lines.size() != 4 || lines[0] == "error") {
    return absl::FailedPreconditionError(
        lines.size() < 2 ? "the driver crashed when it was asked" : lines[1]);
  }
  Machine machine = {lines[0], lines[1],  lines[2], Commit(prefix),
                     System(), Sandbox(), lines[3]};
  return machine;
}

}  // namespace fineserve::gpu
