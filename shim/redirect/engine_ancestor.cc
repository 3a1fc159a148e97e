#include "shim/redirect/engine_ancestor.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "shim/fineserve_kv.h"

namespace fineserve::shim {
namespace {

// The most ancestors that are searched.
constexpr int kMostAncestors = 16;

// True if the file is an engine scoreboard of a process that uses leased
// blocks.
bool IsEngines(int fd) {
  using Header = abi::ScoreboardHeader;
  char magic[sizeof(Header::magic)];
  uint32_t stage = 0;
  return pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
         memcmp(magic, abi::kScoreboardMagic, sizeof(magic)) == 0 &&
         pread(fd, &stage, sizeof(stage), offsetof(Header, plugin_stage)) ==
             sizeof(stage) &&
         stage >= FS_KV_POOL_REPLACED;
}

bool IsEngine(pid_t pid) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%d/fd", pid);
  DIR* const folder = opendir(path);
  if (folder == nullptr) return false;
  bool found = false;
  for (const dirent* file; !found && (file = readdir(folder)) != nullptr;) {
    char target[64] = {};
    if (readlinkat(dirfd(folder), file->d_name, target, sizeof(target) - 1) <
            0 ||
        strstr(target, abi::kScoreboardMemfdName) == nullptr) {
      continue;
    }
    const int fd = openat(dirfd(folder), file->d_name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    found = IsEngines(fd);
    close(fd);
  }
  closedir(folder);
  return found;
}

// 0 if it is not known.
pid_t ParentOf(pid_t pid) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[256] = {};
  const ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  // Parses "4711 (name) S 4242 …", where the name may contain any character.
  const char* const name_end = bytes > 0 ? strrchr(text, ')') : nullptr;
  pid_t parent = 0;
  if (name_end == nullptr || sscanf(name_end, ") %*c %d", &parent) != 1) {
    return 0;
  }
  return parent;
}

}  // namespace

bool HasEngineAncestor() {
  pid_t pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = ParentOf(pid)) {
    if (IsEngine(pid)) return true;
  }
  return false;
}

}  // namespace fineserve::shim
