#include "tools/up/engine_register.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/file_lock.h"
#include "daemon/base/hash.h"
#include "daemon/base/whole_file.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

constexpr char kPrefix[] = "up-";
constexpr char kPidSuffix[] = ".pid";
constexpr char kStoppedSuffix[] = ".stopped";
// Time to wait for processes of a killed fsctl that are about to become
// engines.
constexpr absl::Duration kClaimPatience = absl::Seconds(1);

struct Registered {
  pid_t pid = 0;
  uint64_t start = 0;
};

Registered Read(const std::string& path) {
  const std::vector<std::string> words =
      absl::StrSplit(ReadFile(path), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  Registered r;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &r.pid) || r.pid <= 1 ||
      !absl::SimpleAtoi(words[1], &r.start) || r.start == 0) {
    return {};
  }
  return r;
}

// Returns an invalid descriptor if the process is gone.
driver::Descriptor OpenPidfd(const Registered& r) {
  return r.pid == 0 ? driver::Descriptor() : abi::OpenPidfd(r.pid, r.start);
}

// Returns the names of the engines that have a file with this suffix.
std::vector<std::string> RegisteredNames(const std::string& folder,
                                         absl::string_view suffix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()),
                                                closedir);
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir.get())) {
    absl::string_view file = entry->d_name;
    if (absl::ConsumeSuffix(&file, suffix)) names.emplace_back(file);
  }
  return names;
}

// Returns the register's folder: the former fsctl's if there is one, whichever
// path that fsctl used for the file.
std::string FolderOf(const std::string& runtime_folder,
                     const std::string& fleet) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(runtime_folder, error)) {
    const std::string folder = entry.path();
    if (!absl::StartsWith(entry.path().filename().string(), kPrefix)) continue;
    const std::vector<std::string> lines =
        absl::StrSplit(ReadFile(folder + "/lock"), '\n');
    if (lines.size() > 1 && config::IsSameFleet(lines[1], fleet)) return folder;
  }
  return absl::StrCat(runtime_folder, "/", kPrefix,
                      absl::Hex(base::Hash(fleet)));
}

}  // namespace

bool HasEnded(const driver::Descriptor& pidfd) {
  pollfd ended = {pidfd.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

absl::StatusOr<EngineRegister> EngineRegister::Claim(
    const std::string& runtime_folder, const std::string& fleet_path) {
  const std::string fleet = config::FleetPath(fleet_path);
  const std::string folder = FolderOf(runtime_folder, fleet);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::Cannot("make", folder);
  }
  const std::string path = folder + "/lock";
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return base::Cannot("open", path);
  if (!base::LockWithin(lock, kClaimPatience)) {
    const std::string holder = ReadFile(path);
    return absl::FailedPreconditionError(absl::StrCat(
        "pid ", holder.substr(0, holder.find('\n')), " runs the fleet ", fleet,
        " already (lock ", path, "); stop it first"));
  }
  const std::string text = absl::StrCat(getpid(), "\n", fleet, "\n");
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), text.data(), text.size(), 0) < 0) {
    return base::Cannot("write", path);
  }
  return EngineRegister(folder, std::move(lock),
                        driver::KeepFolder(runtime_folder));
}

std::vector<RegisteredEngine> EngineRegister::Running() const {
  std::vector<RegisteredEngine> running;
  for (const std::string& name : RegisteredNames(folder_, kPidSuffix)) {
    const Registered r = Read(PathOf(name, kPidSuffix));
    driver::Descriptor pidfd = OpenPidfd(r);
    if (pidfd.valid() && !HasEnded(pidfd)) {
      running.push_back({name, r.pid, std::move(pidfd)});
      continue;
    }
    // A pid stays reserved while a process group has that number.
    const bool is_free = pidfd.valid() || abi::ProcessStart(r.pid) == 0;
    if (r.pid != 0 && is_free) kill(-r.pid, SIGKILL);
    Remove(name);
  }
  return running;
}

absl::Status EngineRegister::Enter(const std::string& engine) {
  const absl::Status s = base::ReplaceFile(
      PathOf(engine, kPidSuffix),
      absl::StrCat(getpid(), " ", abi::ProcessStart(getpid()), "\n"));
  if (s.ok()) lock_.Reset();
  return s;
}

void EngineRegister::Remove(const std::string& engine) const {
  unlink(PathOf(engine, kPidSuffix).c_str());
}

std::map<std::string, uint64_t> EngineRegister::Stopped() const {
  std::map<std::string, uint64_t> stopped;
  for (const std::string& name : RegisteredNames(folder_, kStoppedSuffix)) {
    uint64_t& since_ns = stopped[name];
    const std::string text = ReadFile(PathOf(name, kStoppedSuffix));
    if (!absl::SimpleAtoi(text, &since_ns)) since_ns = 0;
  }
  return stopped;
}

absl::Status EngineRegister::SetStopped(const std::string& engine,
                                        uint64_t since_ns) const {
  return base::ReplaceFile(PathOf(engine, kStoppedSuffix),
                           absl::StrCat(since_ns, "\n"));
}

void EngineRegister::EndStopped(const std::string& engine) const {
  unlink(PathOf(engine, kStoppedSuffix).c_str());
}

std::string EngineRegister::PathOf(const std::string& engine,
                                   const char* suffix) const {
  return absl::StrCat(folder_, "/", engine, suffix);
}

}  // namespace fineserve::fsctl
