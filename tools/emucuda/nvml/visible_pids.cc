#include "tools/emucuda/nvml/visible_pids.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace fineserve::emucuda {
namespace {

// Returns the inode of the namespace of a process; 0 if that cannot be known.
uint64_t NamespaceOf(const std::filesystem::path& process) {
  struct stat status = {};
  return stat((process / "ns/pid").c_str(), &status) == 0 ? status.st_ino : 0;
}

// Returns the pid of a process in its own namespace; 0 if it is gone.
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

// Returns the pid of a living process of another namespace, if /proc is this
// namespace's and has it.
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

}  // namespace fineserve::emucuda
