#include "daemon/contract/abi/holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/abi/view_scoreboard.h"

namespace fineserve::abi {
namespace {

// Returns the names in a folder, without "." and ".."; empty if it cannot be
// read.
std::vector<std::string> ListFolder(const std::string& folder) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  std::vector<std::string> names;
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  return names;
}

std::string ReadComm(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/comm");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "?";
  char comm[64] = {};
  ssize_t n = read(fd, comm, sizeof(comm) - 1);
  close(fd);
  if (n > 0 && comm[n - 1] == '\n') comm[n - 1] = '\0';
  return Printable(comm);
}

bool HasName(absl::string_view target, absl::string_view name) {
  const std::string link = absl::StrCat("/memfd:", name);
  return target == link || target == absl::StrCat(link, " (deleted)");
}

// Finds the kind of a memfd by its name. False if the name is not one of our
// memfds'.
bool KindOf(absl::string_view target, Holder::Kind* kind) {
  constexpr std::pair<const char*, Holder::Kind> kNames[] = {
      {kTableMemfdName, Holder::Kind::kTable},
      {kScoreboardMemfdName, Holder::Kind::kEngineScoreboard},
      {kViewScoreboardMemfdName, Holder::Kind::kViewScoreboard}};
  for (const auto& [name, of_name] : kNames) {
    if (!HasName(target, name)) continue;
    *kind = of_name;
    return true;
  }
  return false;
}

// True if the descriptor is one of our memfds. Then fills in kind, device and
// inode.
bool Examine(const std::string& path, Holder* holder) {
  char target[128];
  const ssize_t n = readlink(path.c_str(), target, sizeof(target));
  if (n <= 0) return false;
  const absl::string_view link(target, static_cast<size_t>(n));
  if (!KindOf(link, &holder->kind)) return false;
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return false;
  holder->path = path;
  holder->device = st.st_dev;
  holder->inode = st.st_ino;
  return true;
}

bool SameMemfd(const Holder& a, const Holder& b) {
  return a.device == b.device && a.inode == b.inode;
}

}  // namespace

std::vector<Holder> FindHolders(pid_t pid) {
  std::vector<Holder> found;
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  for (const std::string& name : ListFolder(folder)) {
    Holder holder;
    if (!Examine(absl::StrCat(folder, "/", name), &holder)) continue;
    if (std::any_of(found.begin(), found.end(), [&](const Holder& other) {
          return SameMemfd(holder, other);
        })) {
      continue;
    }
    holder.pid = pid;
    holder.comm = ReadComm(pid);
    found.push_back(std::move(holder));
  }
  return found;
}

std::vector<Holder> FindHolders() {
  std::vector<pid_t> pids;
  for (const std::string& name : ListFolder("/proc")) {
    pid_t pid;
    if (absl::SimpleAtoi(name, &pid)) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  std::vector<Holder> all;
  for (pid_t pid : pids) {
    for (Holder& holder : FindHolders(pid)) all.push_back(std::move(holder));
  }
  return all;
}

}  // namespace fineserve::abi
