#ifndef DAEMON_PROXY_ADMISSION_ADMISSION_LINK_H_
#define DAEMON_PROXY_ADMISSION_ADMISSION_LINK_H_

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/base/http/byte_buffer.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/contract/wire/zmtp.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// The proxy's connection to one fineserved, which it makes again whenever it is
// lost. Confined to the proxy's thread. Must outlive its io_context's run.
class AdmissionLink {
 public:
  struct Hearer {
    // The daemon has answered on a new connection, so it knows nothing of what
    // was sent before.
    std::function<void()> on_connected;
    // `bytes` is aligned to 8 and valid during the call.
    std::function<void(absl::string_view bytes)> on_message;
  };

  virtual ~AdmissionLink() = default;

  // Sends one message. If there is no connection, or the daemon does not read,
  // returns false and keeps nothing for later.
  virtual bool Send(absl::string_view bytes) = 0;
  // Hands over at once the messages that have come, which otherwise wait for
  // their turn in the event loop.
  virtual void Receive() = 0;
};

// Connects to the daemon of this machine, at the path of its admission socket.
// Speaks ZeroMQ's protocol itself, in the proxy's own event loop: ZeroMQ's
// thread would cost each request two more wake-ups (note 0012). All messages of
// one turn of the loop go in one write.
class PathLink final : public AdmissionLink {
 public:
  // PermissionDenied if another user can put a socket at `path`. A missing
  // listener is not an error.
  static absl::StatusOr<std::unique_ptr<PathLink>> Connect(
      boost::asio::io_context* io, std::string path, Hearer hearer);

  bool Send(absl::string_view bytes) override;
  void Receive() override;

  // Number of connections closed because their bytes were not ZMTP, or did not
  // come from a ROUTER.
  uint64_t garbled() const { return garbled_; }

 private:
  PathLink(boost::asio::io_context* io, std::string path, Hearer hearer);

  void Open();
  void OpenLater();
  void Close();
  void Warn(const absl::Status& s);
  void WriteSoon();
  void Write();
  void Listen();
  // False if the connection has to be closed.
  bool Understand();

  boost::asio::io_context* const io_;
  const std::string path_;
  const Hearer hearer_;
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::steady_timer retry_;
  std::chrono::milliseconds pause_;  // before the next attempt
  wire::ZmtpReader reader_;
  ByteBuffer received_;
  std::string unsent_;
  bool write_set_ = false;  // Write will be called
  absl::Status warned_;     // the last trouble that was logged
  uint64_t garbled_ = 0;
};

// Connects to a daemon of another machine through ZeroMQ, whose thread encrypts
// and reconnects. ZeroMQ does not signal a new connection; instead, the daemon
// refuses messages on it until it is greeted.
class SocketLink final : public AdmissionLink {
 public:
  SocketLink(boost::asio::io_context* io, wire::ClientSocket socket,
             Hearer hearer);

  bool Send(absl::string_view bytes) override;
  void Receive() override;

 private:
  void Listen();
  void ReceiveSoon();

  boost::asio::io_context* const io_;
  const Hearer hearer_;
  wire::ClientSocket socket_;
  boost::asio::posix::stream_descriptor readable_;
  bool posted_ = false;  // Receive
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ADMISSION_LINK_H_
