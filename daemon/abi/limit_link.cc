#include "daemon/abi/limit_link.h"

#include <string.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/printable.h"
#include "daemon/abi/transport.h"

namespace fineserve::abi {
namespace {

constexpr uint32_t kSequence = 2;  // after the Hello

absl::Status ToStatus(const Refused& refused) {
  if (refused.code == RefusalCode::kMalformed) {
    return absl::UnimplementedError(Printable(refused.text));
  }
  return absl::InvalidArgumentError(Printable(refused.text));
}

}  // namespace

absl::StatusOr<LimitDone> LimitEngine(const ObserverLink& link,
                                      uint32_t engine_id, uint32_t slabs) {
  auto request = MakeMessage<LimitRequest>(kSequence);
  request.engine_id = engine_id;
  request.slabs = slabs;
  Received received;
  int error = Send(link.socket.get(), request);
  if (error == 0) error = received.ReceiveFrom(link.socket.get());
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("fineserved did not answer: ", strerror(error)));
  }
  Refused refused;
  if (received.As(&refused)) return ToStatus(refused);
  LimitDone done;
  if (received.As(&done) && done.header.sequence == kSequence) return done;
  return absl::UnavailableError("fineserved sent an answer of the wrong kind");
}

}  // namespace fineserve::abi
