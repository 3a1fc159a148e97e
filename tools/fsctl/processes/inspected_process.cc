#include "tools/fsctl/processes/inspected_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/base/whole_file.h"
#include "daemon/contract/abi/process_start.h"
#include "kernels/driver/descriptor_limit.h"
#include "tools/fsctl/terminal/clean_text.h"

namespace fineserve::fsctl {

std::string FullDescriptorTable(pid_t pid) {
  rlimit limit;
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) != 0) return "";
  std::error_code error;
  const std::filesystem::directory_iterator open(
      absl::StrCat("/proc/", pid, "/fd"), error);
  if (error) return "";
  const auto count = std::distance(begin(open), end(open));
  const auto used = static_cast<rlim_t>(count) + driver::kReservedDescriptors;
  if (used < limit.rlim_cur) return "";
  return absl::StrCat("its descriptor table is full (", count, " of ",
                      limit.rlim_cur,
                      "); raise its limit (LimitNOFILE) and restart it");
}

absl::Status CheckProcess(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  const driver::Descriptor fd(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) return absl::OkStatus();
  if (errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(
        "no process has pid ", pid, "; list engines with: fsctl engines"));
  }
  return absl::PermissionDeniedError(
      absl::StrCat("no permission to inspect pid ", pid,
                   "; run fsctl as its user or as root"));
}

std::set<pid_t> ChildrenOf(pid_t pid) {
  std::set<pid_t> children;
  std::error_code trouble;
  const std::string threads = absl::StrCat("/proc/", pid, "/task");
  for (const auto& thread :
       std::filesystem::directory_iterator(threads, trouble)) {
    const std::string text = ReadFile((thread.path() / "children").string());
    for (absl::string_view word :
         absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) children.insert(child);
    }
  }
  return children;
}

AddressMap ReadMap(pid_t pid) {
  AddressMap map =
      AddressMap::Parse(ReadFile(absl::StrCat("/proc/", pid, "/maps")));
  map.NameFunctionsUnder(absl::StrCat("/proc/", pid, "/root"));
  return map;
}

absl::StatusOr<driver::Descriptor> OpenHeld(const abi::Holder& holder) {
  driver::Descriptor fd(
      open(holder.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid()) return fd;
  return absl::NotFoundError(absl::StrCat(holder.path, " has been closed"));
}

const LinkText& TextOf(abi::LinkState state) {
  // In the order of LinkState.
  static constexpr LinkText kTexts[] = {
      {"not_tried", "not tried: no large allocation yet"},
      {"connected", "connected"},
      {"no_daemon", "no daemon: everything passes through"},
      {"refused", "refused: everything passes through"},
      {"lost", "lost: the daemon went away"},
      {"forked", "forked child: everything passes through"},
  };
  static_assert(std::size(kTexts) ==
                static_cast<size_t>(abi::LinkState::kForked) + 1);
  return kTexts[static_cast<size_t>(state)];
}

std::string ReadFile(const std::string& path) {
  return base::ReadWholeFile(path).value_or("");
}

std::string LastLine(int file, off_t begin) {
  char text[4096];
  const off_t end = lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(begin, end - off_t{sizeof(text)});
  const ssize_t n = pread(file, text, sizeof(text), from);
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(text, n > 0 ? static_cast<size_t>(n) : 0),
                     '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : lines.back();
}

namespace {

namespace fs = std::filesystem;

constexpr int kGroupField = 5;  // of /proc/PID/stat

// The number of a socket, which appears in the link of a descriptor and in the
// tables.
using Inode = uint64_t;

// proc(5): "sl local_address rem_address st … inode", where the address is
// hexadecimal "ADDRESS:PORT" and the state 0A is TCP_LISTEN.
std::map<Inode, uint16_t> PortsIn(const std::string& table) {
  std::map<Inode, uint16_t> ports;
  std::istringstream lines(ReadFile(table));
  for (std::string line; std::getline(lines, line);) {
    unsigned port = 0, state = 0;
    unsigned long long inode = 0;
    const int found =
        sscanf(line.c_str(), "%*s %*[^:]:%x %*s %x %*s %*s %*s %*s %*s %llu",
               &port, &state, &inode);
    if (found == 3 && state == 0x0a) ports[inode] = static_cast<uint16_t>(port);
  }
  return ports;
}

void AddPorts(const std::string& process, std::set<uint16_t>* ports) {
  // Reads the tables of the process's network namespace, which may be a
  // container's.
  std::map<Inode, uint16_t> known = PortsIn(process + "/net/tcp");
  known.merge(PortsIn(process + "/net/tcp6"));
  std::error_code e;
  for (fs::directory_iterator fd(process + "/fd", e), end; !e && fd != end;
       fd.increment(e)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(fd->path(), gone).string();
    absl::string_view name = target;
    Inode inode = 0;
    if (!absl::ConsumePrefix(&name, "socket:[") ||
        !absl::ConsumeSuffix(&name, "]") || !absl::SimpleAtoi(name, &inode)) {
      continue;
    }
    const auto port = known.find(inode);
    if (port != known.end()) ports->insert(port->second);
  }
}

}  // namespace

std::set<uint16_t> ListeningPorts(pid_t group) {
  std::set<uint16_t> ports;
  std::error_code e;
  for (fs::directory_iterator process("/proc", e), end; !e && process != end;
       process.increment(e)) {
    const std::string path = process->path().string();
    int pid = 0;
    if (!absl::SimpleAtoi(process->path().filename().string(), &pid)) continue;
    if (abi::StatField(pid, kGroupField) == static_cast<uint64_t>(group))
      AddPorts(path, &ports);
  }
  return ports;
}

namespace {

// A hierarchy of cgroups that can freeze processes.
struct Hierarchy {
  bool is_v2 = false;
  std::string root;   // the cgroup that is mounted
  std::string mount;  // and where
};

std::vector<Hierarchy> FreezingHierarchies(const std::string& mounts) {
  std::vector<Hierarchy> found;
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    const std::vector<std::string> halves = absl::StrSplit(line, " - ");
    if (halves.size() != 2) continue;
    const std::vector<std::string> mount = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> system = absl::StrSplit(halves[1], ' ');
    if (mount.size() < 5 || system.size() < 3) continue;
    const bool is_v2 = system[0] == "cgroup2";
    const std::vector<std::string> options = absl::StrSplit(system[2], ',');
    const bool is_freezer =
        system[0] == "cgroup" &&
        std::count(options.begin(), options.end(), "freezer") != 0;
    if (is_v2 || is_freezer) found.push_back({is_v2, mount[3], mount[4]});
  }
  return found;
}

// Returns the process's cgroup in a hierarchy; empty if it has none there.
std::string CgroupIn(const Hierarchy& hierarchy, const std::string& cgroups) {
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n')) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool is_it = hierarchy.is_v2
                           ? parts[0] == "0"
                           : std::count(controllers.begin(), controllers.end(),
                                        "freezer") != 0;
    if (is_it) return parts[2];
  }
  return "";
}

// Returns the command that thaws the cgroup; empty if it is not frozen. The
// path is quoted, since the creator of a cgroup chooses its name.
std::string ThawingCommand(const std::string& folder, bool is_v2) {
  const std::string own =
      folder + (is_v2 ? "/cgroup.freeze" : "/freezer.self_freezing");
  if (!absl::StartsWith(ReadFile(own), "1")) return "";
  return is_v2 ? "echo 0 >" + ShellQuoted(own)
               : "echo THAWED >" + ShellQuoted(folder + "/freezer.state");
}

}  // namespace

std::string ThawCommand(const std::string& cgroups, const std::string& mounts) {
  for (const Hierarchy& hierarchy : FreezingHierarchies(mounts)) {
    const std::filesystem::path cgroup = CgroupIn(hierarchy, cgroups);
    if (cgroup.empty()) continue;
    const std::string below = cgroup.lexically_relative(hierarchy.root);
    for (std::filesystem::path at = below; !at.empty(); at = at.parent_path()) {
      const std::string thaws =
          ThawingCommand(hierarchy.mount / at, hierarchy.is_v2);
      if (!thaws.empty()) return thaws;
    }
  }
  return "";
}

std::string ThawCommand(pid_t pid) {
  return ThawCommand(ReadFile(absl::StrCat("/proc/", pid, "/cgroup")),
                     ReadFile("/proc/self/mountinfo"));
}

}  // namespace fineserve::fsctl
