#include "tools/fsctl/process/freezer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/fsctl/process/read_file.h"
#include "tools/fsctl/terminal/clean_text.h"

namespace fineserve::fsctl {
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

// The process's cgroup in a hierarchy; empty: it has none there.
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

// Empty: it does not freeze what is in it. Quoted, since a cgroup's maker
// chooses its name.
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
