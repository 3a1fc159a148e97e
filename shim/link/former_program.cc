// How a program waits for the end of one that ran in its process before.

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/abi/messages.h"
#include "daemon/abi/socket_path.h"
#include "shim/link/daemon_link.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {
namespace {

// Heuristic: a driver needs less to tear a context down.
constexpr int kMostMs = 2'000;

bool IsSocket(const char* name) {
  const char* dot = strrchr(name, '.');
  return dot != nullptr && strcmp(dot, ".sock") == 0;
}

// Any answer, or the end of the connection, ends the wait.
void AwaitAnswer(const char* path) {
  char why[abi::kPathBytes + 128];
  const int fd = ConnectTo(path, kMostMs, why, sizeof(why));
  if (fd < 0) return;
  auto hello = abi::MakeMessage<abi::Hello>(1);
  hello.role = abi::Role::kObserver;
  hello.pid = static_cast<uint32_t>(getpid());
  if (SendAtOnce(fd, &hello, sizeof(hello)) == 0) WaitReadable(fd, kMostMs);
  close(fd);
}

}  // namespace

void DaemonLink::AwaitFormerProgram() {
  char folder[abi::kPathBytes];
  DIR* entries = abi::RuntimeFolder(folder) ? opendir(folder) : nullptr;
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    char path[abi::kPathBytes + sizeof(entry->d_name)];
    if (!IsSocket(entry->d_name)) continue;
    snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    AwaitAnswer(path);
  }
  closedir(entries);
}

}  // namespace fineserve::shim
