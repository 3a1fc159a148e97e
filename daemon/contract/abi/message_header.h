#ifndef DAEMON_CONTRACT_ABI_MESSAGE_HEADER_H_
#define DAEMON_CONTRACT_ABI_MESSAGE_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "daemon/contract/abi/version.h"

namespace fineserve::abi {

inline constexpr uint32_t kMessageMagic = 0x31565346;  // "FSV1"
inline constexpr size_t kMaxMessageBytes = 1024;
// Linux refuses more descriptors in one SCM_RIGHTS message (SCM_MAX_FD).
inline constexpr uint32_t kMaxDescriptorsPerMessage = 253;

enum class MessageType : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kLeaseRequest = 4,
  kLeaseGrant = 5,
  kGranuleRequest = 6,
  kGranuleBatch = 7,
  kReturnRequest = 8,
  kReturnDone = 9,
  kRuleRequest = 10,
  kRuleAnswer = 11,
  kViewRequest = 12,
  kViewAnswer = 13,
  kPoolGranuleRequest = 14,
  kActivateRequest = 15,
  kActivateDone = 16,
  kWantNotice = 17,
  kReturnNotice = 18,
  kCloseViewRequest = 19,
  kCloseViewDone = 20,
  kRunPoolRequest = 21,
  kRunPoolAnswer = 22,
  kLimitRequest = 23,
  kLimitDone = 24,
  kRoomRequest = 25,
  kRoomAnswer = 26,
  kMoveReport = 27,
  kMoveOrder = 28,
  kMoveRequest = 29,
  kMoveDone = 30,
  kMoveContents = 31,
  kMoveCopied = 32,
  kStoreRequest = 33,
  kStoreAnswer = 34,
  kMoveFill = 35,
  kMoveFilled = 36,
  kOpenRequest = 37,
  kOpenAnswer = 38,
  kCloseRequest = 39,
  kCloseDone = 40,
  kRestRequest = 41,
  kRestAnswer = 42,
  kOfferRequest = 43,
  kOfferAnswer = 44,
  kMoveCompare = 45,
  kMoveCompared = 46,
  kDropOrder = 47,
  kDropRequest = 48,
  kReadRequest = 49,
  kReadAnswer = 50,
  kEndReadRequest = 51,
  kEndReadDone = 52,
  kRecallRequest = 53,
  kRecallDone = 54,
  kCarryRequest = 55,
  kCarryDone = 56,
};

// This header is the same in every version, forever, so that two versions can
// refuse each other by name.
struct MessageHeader {
  uint32_t magic;
  uint16_t abi_version;
  MessageType type;
  uint32_t bytes;     // of the whole message
  uint32_t sequence;  // the answer repeats its request's
};
static_assert(sizeof(MessageHeader) == 16);

// Returns a message of type M with its header filled in and everything else
// zero.
template <typename M>
M MakeMessage(uint32_t sequence) {
  static_assert(std::is_trivially_copyable_v<M> &&
                sizeof(M) <= kMaxMessageBytes);
  M message{};
  message.header = {kMessageMagic, kAbiVersion, M::kType, sizeof(M), sequence};
  return message;
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_MESSAGE_HEADER_H_
