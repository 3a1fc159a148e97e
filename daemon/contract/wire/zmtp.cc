#include "daemon/contract/wire/zmtp.h"

#include <endian.h>
#include <string.h>

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

constexpr size_t kGreetingBytes = 64;
constexpr size_t kVersionAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr size_t kMechanismBytes = 20;

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

// Larger than any command of the protocol.
constexpr uint64_t kCommandBytes = 4096;
constexpr size_t kTtlBytes = 2;  // in front of what a PING says

constexpr absl::string_view kPing = "PING";
constexpr absl::string_view kPong = "PONG";
constexpr absl::string_view kReady = "READY";
constexpr absl::string_view kError = "ERROR";
constexpr absl::string_view kSocketType = "Socket-Type";

std::string Number(uint32_t value) {
  const uint32_t big = htobe32(value);
  return std::string(reinterpret_cast<const char*>(&big), sizeof(big));
}

// Returns the text with its size in one byte in front.
std::string Short(absl::string_view text) {
  return absl::StrCat(std::string(1, static_cast<char>(text.size())), text);
}

void AppendFrame(uint8_t flags, absl::string_view bytes, std::string* sent) {
  if (bytes.size() <= UINT8_MAX) {
    sent->push_back(static_cast<char>(flags));
    sent->push_back(static_cast<char>(bytes.size()));
  } else {
    sent->push_back(static_cast<char>(flags | kLong));
    const uint64_t size = htobe64(bytes.size());
    sent->append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  sent->append(bytes.data(), bytes.size());
}

void AppendCommand(absl::string_view name, absl::string_view says,
                   std::string* sent) {
  AppendFrame(kCommand, absl::StrCat(Short(name), says), sent);
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// Removes the next short field, which is preceded by its size in one byte, from
// `from` and returns it.
absl::optional<absl::string_view> TakeShort(absl::string_view* from) {
  if (from->empty()) return absl::nullopt;
  const auto size = static_cast<uint8_t>(from->front());
  if (from->size() - 1 < size) return absl::nullopt;
  const absl::string_view taken = from->substr(1, size);
  from->remove_prefix(1 + size);
  return taken;
}

// The same with a size in 4 bytes.
absl::optional<absl::string_view> TakeLong(absl::string_view* from) {
  uint32_t size;
  if (from->size() < sizeof(size)) return absl::nullopt;
  memcpy(&size, from->data(), sizeof(size));
  size = be32toh(size);
  if (from->size() - sizeof(size) < size) return absl::nullopt;
  const absl::string_view taken = from->substr(sizeof(size), size);
  from->remove_prefix(sizeof(size) + size);
  return taken;
}

// Checks the greeting. A peer that speaks another protocol is recognised by its
// first byte.
absl::Status CheckGreeting(absl::string_view greeting) {
  const auto at = [&](size_t place) {
    return static_cast<uint8_t>(greeting[place]);
  };
  if (!greeting.empty() && at(0) != 0xFF) return Wrong("it speaks no ZMTP");
  if (greeting.size() < kGreetingBytes) return absl::OkStatus();
  if ((at(kVersionAt - 1) & 1) == 0 || at(kVersionAt) < 3) {
    return Wrong("it speaks a ZMTP older than 3.0");
  }
  absl::string_view mechanism = greeting.substr(kMechanismAt, kMechanismBytes);
  mechanism = mechanism.substr(0, mechanism.find('\0'));
  if (mechanism == "NULL") return absl::OkStatus();
  return Wrong(absl::StrCat("it wants the mechanism \"",
                            absl::CHexEscape(mechanism), "\", not NULL"));
}

// Checks the `properties` of READY; each is a name and a value.
absl::Status CheckReady(absl::string_view properties) {
  absl::string_view type;
  while (!properties.empty()) {
    const auto name = TakeShort(&properties);
    const auto value = name ? TakeLong(&properties) : absl::nullopt;
    if (!value) return Wrong("its READY is cut off");
    if (absl::EqualsIgnoreCase(*name, kSocketType)) type = *value;
  }
  if (type == "ROUTER") return absl::OkStatus();
  return Wrong(
      absl::StrCat("it is no ROUTER but \"", absl::CHexEscape(type), "\""));
}

}  // namespace

struct ZmtpReader::Frame {
  uint8_t flags = 0;
  absl::string_view body;
  size_t bytes = 0;  // with all that precedes the body
};

std::string ZmtpOpening() {
  std::string opening(kGreetingBytes, '\0');
  opening[0] = '\xFF';
  opening[kVersionAt - 2] = 1;  // the size of an identity, for old versions
  opening[kVersionAt - 1] = '\x7F';
  opening[kVersionAt] = 3;
  opening[kVersionAt + 1] = 1;
  opening.replace(kMechanismAt, 4, "NULL");
  constexpr absl::string_view kDealer = "DEALER";
  AppendCommand(
      kReady, absl::StrCat(Short(kSocketType), Number(kDealer.size()), kDealer),
      &opening);
  return opening;
}

void AppendZmtpMessage(absl::string_view bytes, std::string* sent) {
  AppendFrame(0, bytes, sent);
}

absl::StatusOr<size_t> ZmtpReader::Read(absl::string_view received,
                                        const OnMessage& on_message,
                                        std::string* sent) {
  const size_t all = received.size();
  if (!greeted_) {
    const absl::Status s = CheckGreeting(received);
    if (!s.ok()) return s;
    if (received.size() < kGreetingBytes) return 0;
    greeted_ = true;
    received.remove_prefix(kGreetingBytes);
  }
  for (;;) {
    const absl::StatusOr<Frame> frame = FrontFrame(received);
    if (!frame.ok()) return frame.status();
    if (frame->bytes == 0) return all - received.size();
    const absl::Status s = ReadFrame(*frame, on_message, sent);
    if (!s.ok()) return s;
    received.remove_prefix(frame->bytes);
  }
}

// Returns the frame at the start of `received`; an empty one, of 0 bytes, if it
// is not complete.
absl::StatusOr<ZmtpReader::Frame> ZmtpReader::FrontFrame(
    absl::string_view received) {
  Frame frame;
  if (received.empty()) return frame;
  frame.flags = static_cast<uint8_t>(received[0]);
  if ((frame.flags & ~(kMore | kLong | kCommand)) != 0) {
    return Wrong(
        absl::StrCat("it set unknown flags of a frame, ", frame.flags));
  }
  uint64_t size = 0;
  const size_t head = (frame.flags & kLong) != 0 ? 1 + sizeof(size) : 2;
  if (received.size() < head) return frame;
  if ((frame.flags & kLong) != 0) {
    memcpy(&size, received.data() + 1, sizeof(size));
    size = be64toh(size);
  } else {
    size = static_cast<uint8_t>(received[1]);
  }
  const uint64_t most =
      (frame.flags & kCommand) != 0 ? kCommandBytes : uint64_t{kMessageBytes};
  if (size > most) {
    return Wrong(absl::StrCat("it began a frame of ", size, " bytes; ", most,
                              " are the most"));
  }
  if (received.size() - head < size) return frame;
  frame.body = received.substr(head, size);
  frame.bytes = head + size;
  return frame;
}

absl::Status ZmtpReader::ReadFrame(const Frame& frame,
                                   const OnMessage& on_message,
                                   std::string* sent) {
  if ((frame.flags & kMore) != 0) {
    return Wrong("it began a message of several frames");
  }
  if ((frame.flags & kCommand) != 0) return ReadCommand(frame.body, sent);
  if (!ready_) return Wrong("it sent a message before its READY");
  message_.assign(frame.body.data(), frame.body.size());
  on_message(message_);
  return absl::OkStatus();
}

absl::Status ZmtpReader::ReadCommand(absl::string_view body,
                                     std::string* sent) {
  const absl::optional<absl::string_view> name = TakeShort(&body);
  if (!name) return Wrong("it sent a command that is cut off");
  if (*name == kError) {
    const absl::string_view why = TakeShort(&body).value_or("");
    return Wrong(absl::StrCat("it refused: ", absl::CHexEscape(why)));
  }
  if (!ready_) {
    if (*name != kReady) return Wrong("it did not begin with READY");
    const absl::Status s = CheckReady(body);
    ready_ = s.ok();
    return s;
  }
  if (*name == kReady) return Wrong("it sent a second READY");
  if (*name != kPing) return absl::OkStatus();  // PONG, or a later version's
  if (body.size() < kTtlBytes) return Wrong("it sent a PING that is cut off");
  AppendCommand(kPong, body.substr(kTtlBytes), sent);
  return absl::OkStatus();
}

}  // namespace fineserve::wire
