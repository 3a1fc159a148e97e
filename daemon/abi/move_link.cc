#include "daemon/abi/move_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/printable.h"
#include "daemon/abi/transport.h"

namespace fineserve::abi {

absl::StatusOr<MoveDone> MoveEngine(const ObserverLink& link,
                                    uint32_t engine_id, Place to,
                                    absl::Duration timeout) {
  constexpr uint32_t kMoveSequence = 2;  // after the Hello
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(link.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  auto request = MakeMessage<MoveRequest>(kMoveSequence);
  request.engine_id = engine_id;
  request.to = to;
  Received received;
  int error = Send(link.socket.get(), request);
  if (error == 0) error = received.ReceiveFrom(link.socket.get());
  if (error == EAGAIN) {
    return absl::DeadlineExceededError(
        absl::StrCat("the engine is not done after ",
                     absl::FormatDuration(timeout), "; it goes on"));
  }
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("fineserved did not answer: ", strerror(error)));
  }
  Refused refused;
  if (received.As(&refused)) {
    if (refused.code == RefusalCode::kMalformed) {
      return absl::UnimplementedError(Printable(refused.text));
    }
    return absl::FailedPreconditionError(Printable(refused.text));
  }
  MoveDone done;
  if (received.As(&done) && done.header.sequence == kMoveSequence) return done;
  return absl::UnavailableError("fineserved sent an answer of the wrong kind");
}

}  // namespace fineserve::abi
