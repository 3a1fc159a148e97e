#ifndef DAEMON_CONTRACT_ABI_OBSERVER_EXCHANGE_H_
#define DAEMON_CONTRACT_ABI_OBSERVER_EXCHANGE_H_

#include <errno.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/transport.h"

namespace fineserve::abi {

// The sequence of an observer's first message after its Hello.
inline constexpr uint32_t kObserverSequence = 2;

// Sends an observer's request with kObserverSequence, and returns its answer.
// Errors: `refused`, with the daemon's words, if it refuses; NotFound if
// another daemon is responsible (kElsewhere); ResourceExhausted if there is no
// room now (kPoolExhausted); Unimplemented if it does not know the message;
// `late` if no answer arrives within the socket's timeout; Unavailable if the
// daemon hung up or answers with another message. The answer's descriptors are
// in `received`.
template <typename Done, typename Request>
absl::StatusOr<Done> Exchange(const ObserverLink& link, const Request& request,
                              absl::StatusCode refused,
                              const absl::Status& late, Received* received) {
  int error = Send(link.socket.get(), request);
  if (error == 0) error = received->ReceiveFrom(link.socket.get());
  if (error == EAGAIN) return late;
  if (error != 0) {
    return absl::UnavailableError(
        base::WithErrno("fineserved did not answer", error));
  }
  Refused refusal;
  if (received->As(&refusal)) {
    absl::StatusCode code = refused;
    if (refusal.code == RefusalCode::kMalformed) {
      code = absl::StatusCode::kUnimplemented;
    } else if (refusal.code == RefusalCode::kElsewhere) {
      code = absl::StatusCode::kNotFound;
    } else if (refusal.code == RefusalCode::kPoolExhausted) {
      code = absl::StatusCode::kResourceExhausted;
    }
    return absl::Status(code, Printable(refusal.text));
  }
  Done done;
  if (received->As(&done) && done.header.sequence == kObserverSequence) {
    return done;
  }
  return absl::UnavailableError("fineserved sent an answer of the wrong kind");
}

// The same for an answer without descriptors.
template <typename Done, typename Request>
absl::StatusOr<Done> Exchange(const ObserverLink& link, const Request& request,
                              absl::StatusCode refused,
                              const absl::Status& late) {
  Received received;
  return Exchange<Done>(link, request, refused, late, &received);
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_OBSERVER_EXCHANGE_H_
