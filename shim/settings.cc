#include "shim/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "daemon/abi/byte_size.h"
#include "daemon/abi/transport.h"
#include "shim/thread_state.h"
#include "shim/warn.h"

namespace fineserve::shim {
namespace {

enum Answer : int { kUnknown, kNo, kYes };

bool IsSet(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' && strcmp(value, "0") != 0;
}

// Parses one item of a list. Leaves `bytes` alone if it is no size.
bool ParseItem(const char* item, size_t length, uint64_t* bytes) {
  char text[abi::kByteSizeText];
  if (length >= sizeof(text)) return false;
  memcpy(text, item, length);
  text[length] = '\0';
  return abi::ParseByteSize(text, bytes);
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
  int a = answer.load(std::memory_order_relaxed);
  if (a == kUnknown) {
    a = IsSet("FINESERVE_DISABLE") ? kYes : kNo;
    answer.store(a, std::memory_order_relaxed);
  }
  return a == kYes;
}

bool ViewRequired() {
  const char* value = getenv("FINESERVE_VIEW");
  return value != nullptr && strcmp(value, "required") == 0;
}

bool KeepDeepbind() { return IsSet("FINESERVE_KEEP_DEEPBIND"); }

uint32_t ParseSizes(const char* list,
                    uint64_t (&sizes)[abi::kDeclaredSizeCapacity]) {
  uint32_t count = 0;
  while (*list != '\0') {
    const size_t length = strcspn(list, ",");
    uint64_t bytes = 0;
    if (length == 0) {
      // A comma at the end, or two: nothing was meant.
    } else if (!ParseItem(list, length, &bytes)) {
      Warn("FINESERVE_KV_SIZES: \"%.*s\" is no size (write 64MiB or 67108864)",
           static_cast<int>(length), list);
    } else if (bytes < kLargeBytes) {
      Warn("FINESERVE_KV_SIZES: %.*s is under 2MiB and is ignored",
           static_cast<int>(length), list);
    } else if (count == abi::kDeclaredSizeCapacity) {
      Warn("FINESERVE_KV_SIZES: only the first %u sizes are used", count);
      break;
    } else {
      sizes[count++] = bytes;
    }
    list += length + (list[length] == ',' ? 1 : 0);
  }
  return count;
}

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
