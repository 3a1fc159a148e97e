#include "tools/fsctl/process/inspected_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/driver/descriptor_limit.h"
#include "tools/fsctl/process/read_file.h"

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

// A process may also hold the scoreboards of others: a daemon those of its
// engines, a forked child its parent's.
absl::StatusOr<abi::ScoreboardSnapshot> FindScoreboard(pid_t pid) {
  absl::Status trouble = absl::NotFoundError("");
  for (const abi::Holder& holder : abi::FindHolders(pid)) {
    if (holder.kind != abi::Holder::Kind::kEngineScoreboard) continue;
    const absl::StatusOr<driver::Descriptor> fd = OpenHeld(holder);
    if (!fd.ok()) continue;
    absl::StatusOr<abi::ScoreboardSnapshot> scoreboard =
        abi::ReadScoreboard(fd->get());
    if (!scoreboard.ok()) {
      trouble = scoreboard.status();
    } else if (scoreboard->pid == static_cast<uint32_t>(pid)) {
      return scoreboard;
    }
  }
  return trouble;
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

}  // namespace fineserve::fsctl
