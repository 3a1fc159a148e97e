#include "daemon/wire/fault_counts.h"

#include <numeric>

#include "daemon/wire/message.h"

namespace fineserve::wire {

std::unique_ptr<RefusedConnectionsT> OnWire(const FaultCounts& counts) {
  if (Sum(counts) == 0) return nullptr;
  auto told = std::make_unique<RefusedConnectionsT>();
  told->untrusted = counts[static_cast<size_t>(ConnectionFault::kUntrusted)];
  told->no_handshake =
      counts[static_cast<size_t>(ConnectionFault::kNoHandshake)];
  told->damaged = counts[static_cast<size_t>(ConnectionFault::kDamaged)];
  return told;
}

FaultCounts CountsOf(const RefusedConnectionsT* told) {
  if (told == nullptr) return {};
  return {told->untrusted, told->no_handshake, told->damaged};
}

uint64_t Sum(const FaultCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace fineserve::wire
