#include "shim/host/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "daemon/contract/abi/transport.h"

namespace fineserve::shim {
namespace {

enum Answer : int { kUnknown, kNo, kYes };

bool IsSet(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' && strcmp(value, "0") != 0;
}

bool Is(const char* name, const char* wanted) {
  const char* value = getenv(name);
  return value != nullptr && strcmp(value, wanted) == 0;
}

// Returns the result of `ask()`, which is kept; threads that call this at the
// same time get the same result.
template <typename Ask>
bool AskOnce(std::atomic<int>* answer, Ask ask) {
  int a = answer->load(std::memory_order_relaxed);
  if (a == kUnknown) {
    a = ask() ? kYes : kNo;
    answer->store(a, std::memory_order_relaxed);
  }
  return a == kYes;
}

// The name of the process (its main thread), not of the calling thread.
void Comm(char (&out)[32]) {
  abi::CopyText(out, program_invocation_short_name);
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = read(fd, out, sizeof(out) - 1);
  close(fd);
  if (n <= 0) return;
  out[n] = '\0';
  out[strcspn(out, "\n")] = '\0';
}

}  // namespace

bool Disabled() {
  static constinit std::atomic<int> answer{kUnknown};
  return AskOnce(&answer, [] { return IsSet("FINESERVE_DISABLE"); });
}

bool ViewRequired() { return Is("FINESERVE_VIEW", "required"); }

bool EvictionWanted() {
  static constinit std::atomic<int> answer{kUnknown};
  return AskOnce(&answer, [] { return Is("FINESERVE_EVICT", "auto"); });
}

bool KeepDeepbind() { return IsSet("FINESERVE_KEEP_DEEPBIND"); }

void EngineName(char (&out)[abi::kNameBytes]) {
  const char* chosen = getenv("FINESERVE_ENGINE");
  if (chosen != nullptr && chosen[0] != '\0') {
    abi::CopyText(out, chosen);
    return;
  }
  char comm[32];
  Comm(comm);
  snprintf(out, sizeof(out), "%s-%d", comm, getpid());
}

void ProgramName(char (&out)[abi::kNameBytes]) {
  abi::CopyText(out, program_invocation_short_name);
}

}  // namespace fineserve::shim
