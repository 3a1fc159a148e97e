#include "daemon/contract/wire/message.h"

#include "absl/strings/str_cat.h"

namespace fineserve::wire {
namespace {

constexpr flatbuffers::uoffset_t kMostDepth = 8;
constexpr flatbuffers::uoffset_t kMostTables = 1 << 16;

}  // namespace

std::string Encode(const MessageT& message) {
  flatbuffers::FlatBufferBuilder builder(512);
  FinishMessageBuffer(builder, Message::Pack(builder, &message));
  return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()),
                     builder.GetSize());
}

absl::StatusOr<MessageT> Decode(absl::string_view bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()),
                                 bytes.size(), kMostDepth, kMostTables);
  if (!VerifyMessageBuffer(verifier)) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes.size(), " bytes are not a message of this protocol"));
  }
  const Message* message = GetMessage(bytes.data());
  if (message->version() != kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer speaks version ", message->version(),
                     " of the admission protocol, this program ", kWireVersion,
                     "; install one version of FineServe"));
  }
  MessageT object;
  message->UnPackTo(&object);
  if (object.body.value == nullptr) {
    return absl::InvalidArgumentError("a message without a body");
  }
  return object;
}

}  // namespace fineserve::wire
