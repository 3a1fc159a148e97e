#include "bench/soak/progress.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <utility>

namespace fineserve::bench {

Progress::Progress(std::string what, uint64_t of)
    : what_(std::move(what)), of_(of), shown_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_) fprintf(stderr, "\r\033[K");
}

void Progress::Add(uint64_t done) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ += done;
  if (!shown_) return;
  constexpr uint64_t kColumns = 24;
  const auto filled =
      static_cast<size_t>(std::min(kColumns, kColumns * done_ / of_));
  const std::string bar =
      std::string(filled, '=') + (filled < kColumns ? ">" : "");
  fprintf(stderr, "\r\033[K%s [%-*s] %" PRIu64 "/%" PRIu64, what_.c_str(),
          static_cast<int>(kColumns), bar.c_str(), done_, of_);
}

}  // namespace fineserve::bench
