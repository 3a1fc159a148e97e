#ifndef DAEMON_CONTRACT_WIRE_MESSAGE_H_
#define DAEMON_CONTRACT_WIRE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/contract/wire/admission_generated.h"

namespace fineserve::wire {

// Raised by every change that an older peer would misread.
inline constexpr uint16_t kWireVersion = 3;

// The largest message that either side accepts, in bytes.
inline constexpr int64_t kMessageBytes = int64_t{4} << 20;

std::string Encode(const MessageT& message);

// `body` is one of admission.fbs's tables as an object, e.g. SubmitT.
template <typename Body>
std::string Encode(uint64_t epoch, uint64_t request, Body body) {
  MessageT message;
  message.version = kWireVersion;
  message.epoch = epoch;
  message.request = request;
  message.body.Set(std::move(body));
  return Encode(message);
}

// Decodes a message. The peer may send anything, so `bytes` are verified before
// they are read. They must be aligned to 8, as a std::string's are.
// InvalidArgument if they are not a message; FailedPrecondition, naming both
// versions, if the peer has a different version.
absl::StatusOr<MessageT> Decode(absl::string_view bytes);

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_MESSAGE_H_
