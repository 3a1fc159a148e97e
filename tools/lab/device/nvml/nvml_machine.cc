#include "tools/lab/device/nvml/nvml_machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {
namespace {

// Returns the inode of a process's pid namespace, or 0 if it cannot be
// determined.
uint64_t NamespaceOf(const std::filesystem::path& process) {
  struct stat status = {};
  return stat((process / "ns/pid").c_str(), &status) == 0 ? status.st_ino : 0;
}

// Returns the pid of a process in the process's own namespace, or 0 if the
// process is gone.
uint32_t InnermostPid(const std::filesystem::path& process) {
  constexpr char kField[] = "NSpid:";
  std::ifstream file(process / "status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(kField, 0) != 0) continue;
    return static_cast<uint32_t>(
        strtoul(line.c_str() + line.find_last_of(" \t") + 1, nullptr, 10));
  }
  return 0;
}

// Returns the pid, in this namespace, of a living process of another namespace,
// if /proc belongs to this namespace and lists the process.
std::optional<uint32_t> Find(uint64_t pid_namespace, uint32_t pid) {
  std::error_code ignored;
  const std::filesystem::path proc = "/proc";
  if (std::filesystem::read_symlink(proc / "self", ignored) !=
      std::to_string(getpid())) {
    return std::nullopt;
  }
  for (const auto& entry : std::filesystem::directory_iterator(proc, ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos &&
        NamespaceOf(entry.path()) == pid_namespace &&
        InnermostPid(entry.path()) == pid) {
      return static_cast<uint32_t>(std::stoul(name));
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<VisiblePids::Client> VisiblePids::Of(
    int device, const std::vector<Client>& clients) {
  const uint64_t here = NamespaceOf("/proc/self");
  const MutexLock lock(mutex_);
  std::vector<Client> visible;
  std::map<Place, uint32_t> seen;
  for (Client client : clients) {
    if (client.pid_namespace != here) {
      const Place place(client.pid_namespace, client.pid);
      std::optional<uint32_t> pid = Find(place.first, place.second);
      const auto before = seen_[device].find(place);
      if (!pid && before != seen_[device].end()) pid = before->second;
      if (!pid) continue;
      seen[place] = client.pid = *pid;
    }
    visible.push_back(client);
  }
  seen_[device] = std::move(seen);
  return visible;
}

nvmlReturn_t Machine::Init() {
  const MutexLock lock(mutex_);
  if (devices_.count() == 0 && !OpenDevices())
    return NVML_ERROR_DRIVER_NOT_LOADED;
  ++references_;
  return NVML_SUCCESS;
}

nvmlReturn_t Machine::Shutdown() {
  const MutexLock lock(mutex_);
  if (references_ == 0) return NVML_ERROR_UNINITIALIZED;
  --references_;
  return NVML_SUCCESS;
}

void Machine::Delay() {
  if (settings_.nvml_latency_us == 0 && !driver_lock_.is_shared()) return;
  const DriverLock::Held lock(&driver_lock_);
  if (settings_.nvml_latency_us == 0) return;
  std::this_thread::sleep_for(
      std::chrono::microseconds(settings_.nvml_latency_us));
}

bool Machine::OpenDevices() {
  std::string complaint;
  settings_ = ReadSettings(&complaint);
  const auto folder = StateFolder::Open(settings_.folder, &complaint);
  std::optional<DeviceList> devices;
  if (complaint.empty()) {
    // Opens all devices, because NVML ignores CUDA_VISIBLE_DEVICES.
    std::vector<int> numbers(static_cast<size_t>(settings_.devices));
    std::iota(numbers.begin(), numbers.end(), 0);
    devices = DeviceList::Open(*folder, settings_, numbers, &complaint);
  }
  if (!devices) {
    fprintf(stderr, "%s\n", complaint.c_str());
    return false;
  }
  devices_ = *std::move(devices);
  const bool shares =
      settings_.machine_lock || settings_.teardown_us_per_gib > 0;
  return !shares || driver_lock_.Share(settings_.folder);
}

}  // namespace fineserve::emucuda
