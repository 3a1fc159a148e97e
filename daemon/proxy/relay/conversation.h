#ifndef DAEMON_PROXY_RELAY_CONVERSATION_H_
#define DAEMON_PROXY_RELAY_CONVERSATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/response_parser.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/relay/connection.h"
#include "daemon/proxy/relay/service.h"

namespace fineserve::proxy {

// An Exchange's conversation with one server after the other, each an engine or
// an endpoint outside the fleet, and the part of the answer that has come.
//
// Invariant: the pieces view the bytes of the last read, until the next read.
// Once the client has gone (Abandon), nothing more is sent or read. Confined to
// the proxy's thread.
class Conversation {
 public:
  // How an attempt to have the request answered ended.
  enum class Ended {
    kWhole,        // all that was waited for has come
    kNotAnswered,  // no byte of an answer came, or nothing but an error
    kBroken,       // after that the server went away, or sent no valid HTTP
    kClientGone,
  };
  struct Server {
    std::string host;
    uint16_t port = 0;
    bool tls = false;
    // "host:port", or only the host if the port is the default one of https.
    std::string Authority() const;
  };
  // Limits on a server's time, in seconds.
  struct Patience {
    uint32_t to_accept;
    uint32_t to_answer;  // 0: no limit
  };

  // The pointers outlive it.
  Conversation(Connection* client, Service* service, RequestParser* request)
      : client_(client), service_(service), request_(request) {}

  // Sends a server this head and the request's body. kWhole: the head of the
  // server's answer has come.
  asio::awaitable<Ended> Reach(const Server& server, const std::string& head,
                               Patience patience);
  // Waits for more of the answer.
  asio::awaitable<error_code> Read();
  // Reads the answer's body to its end and returns its beginning in `text`.
  // False if the answer breaks off.
  asio::awaitable<bool> ReadBeginning(std::string* text);
  // Notes that the connection to the server has failed.
  Ended Cut();
  // Keeps the connection for another request if the answer was read whole and
  // the server keeps it open.
  void Keep();
  void End() { socket_.reset(); }
  // Notes that the client has gone, so the server should abort.
  void Abandon();
  // The server has had its time.
  void GiveUp();

  bool is_connected() const { return socket_.has_value(); }
  // At least one byte has come.
  bool answered() const { return answered_; }
  // Null before the first.
  const ResponseParser* answer() const { return answer_ ? &*answer_ : nullptr; }
  bool IsEventStream() const;
  // The parts of the body that the last read has brought.
  const std::vector<absl::string_view>& pieces() const { return pieces_; }
  // Puts `held`, which was held back, before the pieces. `held` must be valid
  // until the next Read.
  void Prepend(absl::string_view held) {
    pieces_.insert(pieces_.begin(), held);
  }

  // How the server failed this attempt.
  const absl::optional<EngineError>& error() const { return error_; }
  void SetError(absl::optional<EngineError> error) { error_ = error; }

 private:
  asio::awaitable<bool> Open(Server server, uint32_t seconds);
  asio::awaitable<Ended> Ask(const std::string& head);
  asio::awaitable<Ended> AwaitAnswer();
  void Parse();
  void Close();

  Connection* const client_;
  Service* const service_;
  RequestParser* const request_;

  absl::optional<tcp::socket> socket_;
  std::string reached_;  // the server of socket_, for EnginePool
  bool abandoned_ = false;
  ByteBuffer received_;
  size_t read_bytes_ = 0;    // at a time; grows while reads come back full
  size_t parsed_bytes_ = 0;  // at the front of received_; pieces_ view them
  absl::optional<ResponseParser> answer_;
  std::vector<absl::string_view> pieces_;
  bool answered_ = false;
  absl::optional<EngineError> error_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_CONVERSATION_H_
