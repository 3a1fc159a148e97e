#include "daemon/wire/connection_watch.h"

namespace fineserve::wire {

void ConnectionWatch::Settled() {
  ++settled_;
  if (settled_ < begun_.size()) return;
  begun_.clear();
  settled_ = 0;
}

absl::optional<ConnectionFault> ConnectionWatch::Ended(int fd,
                                                       bool by_this_end) {
  const bool is_beyond = begun_.erase(fd) == 0;
  if (is_beyond) {
    if (!by_this_end) return absl::nullopt;  // its peer has gone
    return ConnectionFault::kDamaged;
  }
  // One of the handshakes that are over may have been its own.
  const bool may_be_beyond = !by_this_end && settled_ > 0;
  if (may_be_beyond) --settled_;
  if (settled_ >= begun_.size()) {
    begun_.clear();
    settled_ = 0;
  }
  if (may_be_beyond) return absl::nullopt;
  return ConnectionFault::kNoHandshake;
}

}  // namespace fineserve::wire
