#ifndef DAEMON_CONTRACT_WIRE_ZMTP_H_
#define DAEMON_CONTRACT_WIRE_ZMTP_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The part of ZMTP 3.1, ZeroMQ's protocol (rfc.zeromq.org/spec/37), that a
// DEALER needs to talk to one ROUTER on its own machine: no encryption
// (mechanism NULL), messages of one frame.
//
//   greeting  64 bytes: FF, 8 bytes of an older version's, 7F, version 3 and 1,
//             "NULL" in 20 bytes, then zeros
//   frame     a byte of flags (1 more of this message, 2 long, 4 command), the
//             size in one byte or, if long, in 8, big-endian; then the bytes
//   command   the size of its name in one byte, the name, what it says
//
// Each side sends its greeting, then the command READY, which says what socket
// it is; then messages, and PING at any time, which PONG answers.

namespace fineserve::wire {

// Returns the first bytes that a DEALER sends, which do not depend on the other
// side.
std::string ZmtpOpening();

// Appends `bytes`, as one message, to `sent`.
void AppendZmtpMessage(absl::string_view bytes, std::string* sent);

// Parses what a ROUTER sends, and trusts none of it. Keeps at most the size of
// one message. Confined to a thread.
class ZmtpReader {
 public:
  // `bytes` is valid during the call, and aligned to 8.
  using OnMessage = std::function<void(absl::string_view bytes)>;

  // Takes the whole frames of `received`, which begins where the former call
  // stopped, and returns the number of their bytes. Appends replies to `sent`.
  // After an error, which says what was wrong with the peer's bytes, the caller
  // must close the connection.
  absl::StatusOr<size_t> Read(absl::string_view received,
                              const OnMessage& on_message, std::string* sent);

  // True once the other side has said that it is ready for messages.
  bool ready() const { return ready_; }

 private:
  struct Frame;

  static absl::StatusOr<Frame> FrontFrame(absl::string_view received);
  absl::Status ReadFrame(const Frame& frame, const OnMessage& on_message,
                         std::string* sent);
  absl::Status ReadCommand(absl::string_view body, std::string* sent);

  bool greeted_ = false;
  bool ready_ = false;
  std::string message_;  // aligned, unlike the bytes in `received`
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_ZMTP_H_
