#include "daemon/contract/wire/connection_watch.h"

#include <numeric>

#include "daemon/contract/wire/message.h"

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
  // One of the handshakes that have ended may have been this connection's.
  const bool may_be_beyond = !by_this_end && settled_ > 0;
  if (may_be_beyond) --settled_;
  if (settled_ >= begun_.size()) {
    begun_.clear();
    settled_ = 0;
  }
  if (may_be_beyond) return absl::nullopt;
  return ConnectionFault::kNoHandshake;
}

std::unique_ptr<RefusedConnectionsT> OnWire(const FaultCounts& counts) {
  if (Sum(counts) == 0) return nullptr;
  auto reported = std::make_unique<RefusedConnectionsT>();
  reported->untrusted =
      counts[static_cast<size_t>(ConnectionFault::kUntrusted)];
  reported->no_handshake =
      counts[static_cast<size_t>(ConnectionFault::kNoHandshake)];
  reported->damaged = counts[static_cast<size_t>(ConnectionFault::kDamaged)];
  return reported;
}

FaultCounts CountsOf(const RefusedConnectionsT* reported) {
  if (reported == nullptr) return {};
  return {reported->untrusted, reported->no_handshake, reported->damaged};
}

uint64_t Sum(const FaultCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace fineserve::wire
