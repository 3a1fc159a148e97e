#include "daemon/contract/abi/move_link.h"

#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/observer_exchange.h"

namespace fineserve::abi {

namespace {

template <typename Request>
absl::StatusOr<MoveDone> AwaitMove(const ObserverLink& link,
                                   const Request& request,
                                   absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(link.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return Exchange<MoveDone>(
      link, request, absl::StatusCode::kFailedPrecondition,
      absl::DeadlineExceededError(absl::StrCat("the engine is not done after ",
                                               absl::FormatDuration(timeout),
                                               "; it goes on")));
}

}  // namespace

absl::StatusOr<MoveDone> MoveEngine(const ObserverLink& link,
                                    uint32_t engine_id, Place to,
                                    absl::Duration timeout) {
  auto request = MakeMessage<MoveRequest>(kObserverSequence);
  request.engine_id = engine_id;
  request.to = to;
  return AwaitMove(link, request, timeout);
}

absl::StatusOr<MoveDone> DropParameters(const ObserverLink& link,
                                        uint32_t engine_id,
                                        const ShareAddress& lender,
                                        uint64_t bytes,
                                        absl::Duration timeout) {
  auto request = MakeMessage<DropRequest>(kObserverSequence);
  request.engine_id = engine_id;
  request.lender = lender;
  request.bytes = bytes;
  return AwaitMove(link, request, timeout);
}

absl::StatusOr<StoreAnswer> AskStore(const ObserverLink& link) {
  return Exchange<StoreAnswer>(
      link, MakeMessage<StoreRequest>(kObserverSequence),
      absl::StatusCode::kFailedPrecondition,
      absl::DeadlineExceededError("fineserved did not answer in time"));
}

absl::StatusOr<StoreOffer> AskOffer(const ObserverLink& link) {
  Received received;
  const absl::StatusOr<OfferAnswer> answer = Exchange<OfferAnswer>(
      link, MakeMessage<OfferRequest>(kObserverSequence),
      absl::StatusCode::kFailedPrecondition,
      absl::DeadlineExceededError("fineserved did not answer in time"),
      &received);
  if (!answer.ok()) return answer.status();
  StoreOffer offer = {*answer, {}, {}};
  if (received.descriptors_lost() || received.descriptor_count() < 2) {
    return offer;
  }
  offer.inventory.Reset(received.TakeDescriptor(0));
  for (uint32_t i = 1; i < received.descriptor_count(); ++i) {
    offer.files.emplace_back(received.TakeDescriptor(i));
  }
  return offer;
}

}  // namespace fineserve::abi
