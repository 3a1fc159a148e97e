#ifndef DAEMON_CONTRACT_WIRE_CONNECTION_WATCH_H_
#define DAEMON_CONTRACT_WIRE_CONNECTION_WATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>

#include "absl/types/optional.h"
#include "daemon/contract/wire/message_types.h"

namespace fineserve::wire {

// Why a connection from another machine was refused, or ended here.
enum class ConnectionFault : uint8_t {
  kUntrusted,    // its key is not trusted here
  kNoHandshake,  // CURVE's handshake was not finished: it is none, it was
                 // encrypted for another key or overheard, or its peer went
  kDamaged,      // after the handshake: a frame that was changed, repeated or
                 // invented on its way
};
inline constexpr size_t kConnectionFaults =
    static_cast<size_t>(ConnectionFault::kDamaged) + 1;
inline constexpr const char* kConnectionFaultNames[] = {
    "untrusted", "no_handshake", "damaged"};
static_assert(std::size(kConnectionFaultNames) == kConnectionFaults);
// Number of times that each ConnectionFault happened.
using FaultCounts = std::array<uint64_t, kConnectionFaults>;

// Finds out, from the events of a CURVE server's TCP connections
// (zmq_socket_monitor), which connections were refused and why.
//
// ZeroMQ (4.3.4) has an event for errors in its protocol, but must not be asked
// for it: the report changes errno, so that the library takes the error for a
// passing one and keeps the connection forever. A connection that was closed by
// this end, and not by its peer, shows such an error just as well.
//
// Events name a connection, by its descriptor, where it is accepted and where
// it ends. The end of a handshake is reported without the connection's name. So
// handshakes are counted, and a connection counts as past its own once as many
// are over as have begun. While two overlap, one may be taken for the other,
// once. Pure; not thread-safe.
class ConnectionWatch {
 public:
  void Accepted(int fd) { begun_.insert(fd); }
  // Records that a handshake is over, whether it succeeded or not.
  void Settled();
  // `by_this_end`: the peer had not closed the connection. Returns the fault to
  // count.
  absl::optional<ConnectionFault> Ended(int fd, bool by_this_end);

 private:
  std::set<int> begun_;  // descriptors whose handshake may be under way
  size_t settled_ = 0;   // handshakes of these that are over
};

// Returns the counts in a report's form; null if all are 0.
std::unique_ptr<RefusedConnectionsT> OnWire(const FaultCounts& counts);
// Null: none.
FaultCounts CountsOf(const RefusedConnectionsT* reported);

uint64_t Sum(const FaultCounts& counts);

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_CONNECTION_WATCH_H_
