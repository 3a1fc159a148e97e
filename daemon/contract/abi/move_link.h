#ifndef DAEMON_CONTRACT_ABI_MOVE_LINK_H_
#define DAEMON_CONTRACT_ABI_MOVE_LINK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/observer_link.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// Moves an engine's resident memory (MoveRequest), and waits until that is
// done. Errors:
//   FailedPrecondition  the daemon refused, or the engine could not, for this
//                       reason; its memory is where it was
//   ResourceExhausted   the GPU has no room for it now; the daemon has others
//                       leave that may, so that another try helps
//   NotFound            the daemon of another of its GPUs moves it
//   Unimplemented       the daemon is of a release that moves nothing
//   DeadlineExceeded    it takes longer than `timeout`, and goes on
//   Unavailable         the daemon hung up
absl::StatusOr<MoveDone> MoveEngine(const ObserverLink& link,
                                    uint32_t engine_id, Place to,
                                    absl::Duration timeout);

// Makes the engine drop parameters in favour of the lender's until `bytes` are
// dropped in all (DropRequest), and waits until that is done. Returns the same
// errors as MoveEngine.
absl::StatusOr<MoveDone> DropParameters(const ObserverLink& link,
                                        uint32_t engine_id,
                                        const ShareAddress& lender,
                                        uint64_t bytes, absl::Duration timeout);

// Asks for the figures of the daemon's store. Errors: Unimplemented if the
// daemon's release has no store, Unavailable if it hung up.
absl::StatusOr<StoreAnswer> AskStore(const ObserverLink& link);

// The copies that a daemon's store offers to others.
struct StoreOffer {
  OfferAnswer answer;
  driver::Descriptor inventory;  // inventory.h; not valid: there are none
  std::vector<driver::Descriptor> files;
};

// Asks for the copies that a daemon's store offers. Errors: Unimplemented if
// the daemon's release does not share its store, Unavailable if it hung up,
// DeadlineExceeded.
absl::StatusOr<StoreOffer> AskOffer(const ObserverLink& link);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_MOVE_LINK_H_
