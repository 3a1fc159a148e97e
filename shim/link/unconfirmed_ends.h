#ifndef SHIM_LINK_UNCONFIRMED_ENDS_H_
#define SHIM_LINK_UNCONFIRMED_ENDS_H_

#include <atomic>
#include <cstdint>

#include "shim/host/plain_mutex.h"

namespace fineserve::shim {

// Leases, and the view, that this process has ended without a confirmation by
// the daemon yet, in the order in which they ended. Each end is sent once, and
// again if the connection was lost before it was confirmed.
//
//   Add ─► unsent ─Sent► sent ─Confirm► (gone)
//             ▲           │
//             └─TellAgain─┘
//
// Thread-safe; every critical section is a few instructions. Constant-
// initialised, trivially destroyed.
class UnconfirmedEnds {
 public:
  // Denotes the view. Lease ids are never 0.
  static constexpr uint32_t kView = 0;
  // Denotes the leases of a suspended view. Lease ids begin with 1 and never
  // get this far.
  static constexpr uint32_t kViewsLeases = UINT32_MAX;
  // More ends than this process can hold leases for (RangeTable, HandleTable).
  static constexpr uint32_t kCapacity = 16384;

  constexpr UnconfirmedEnds() = default;

  // Takes no lock.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // The thing that ended: a lease or, if `lease` is 0, the request with this
  // number, which was given up before it was answered.
  struct What {
    uint32_t lease;
    uint32_t request;
  };

  void Add(uint32_t lease) { Add(What{lease, 0}); }
  void AddRequest(uint32_t request) { Add(What{0, request}); }
  // Returns the first end that has not been sent. False if there is none, or if
  // so many have been sent that their answers might not fit into the socket.
  bool Next(What* what);
  // Records the number of the message that sent this end.
  void Sent(uint32_t sequence);
  // Removes the first end that was sent, which is now confirmed. False if that
  // end was not sent by a message with this number.
  bool Confirm(uint32_t sequence);
  bool AwaitsAnswers();
  bool HasUnsent();

  void TellAgain();
  void Clear();

 private:
  static constexpr uint32_t kMostSent = 64;
  struct End {
    What what;
    uint32_t sequence;
  };

  void Add(What what);
  End& At(uint32_t place) FINESERVE_REQUIRES(mutex_) {
    return ends_[(first_ + place) % kCapacity];
  }

  Mutex mutex_;
  std::atomic<uint32_t> count_{0};
  uint32_t first_ FINESERVE_GUARDED_BY(mutex_) = 0;
  uint32_t sent_ FINESERVE_GUARDED_BY(mutex_) = 0;
  End ends_[kCapacity] FINESERVE_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_UNCONFIRMED_ENDS_H_
