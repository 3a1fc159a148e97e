#include "bench/soak/failures.h"

#include <stdio.h>
#include <unistd.h>

#include "bench/soak/interrupt.h"

namespace fineserve::bench {
namespace {

constexpr size_t kMostPrinted = 20;

}  // namespace

void Failures::Add(Fault fault, const std::string& what) {
  // Ctrl-C ends our programs, too.
  if (Interrupted()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[static_cast<size_t>(fault)];
  if (printed_ == kMostPrinted) return;
  // Clears this line, which may contain a progress bar.
  if (isatty(STDERR_FILENO) != 0) fprintf(stderr, "\r\033[K");
  if (printed_++ == 0) {
    fprintf(stderr, "soak: failed; to repeat it: %s\n", reproduce_.c_str());
  }
  fprintf(stderr, "soak: %s\n", what.c_str());
}

size_t Failures::Count(Fault fault) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_[static_cast<size_t>(fault)];
}

}  // namespace fineserve::bench
