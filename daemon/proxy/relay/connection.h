#ifndef DAEMON_PROXY_RELAY_CONNECTION_H_
#define DAEMON_PROXY_RELAY_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/http/byte_buffer.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/proxy/relay/service.h"
#include "daemon/proxy/request/routes.h"

namespace fineserve::proxy {

// One client's connection: reads a request, answers it or lets an Exchange
// forward it, and repeats this until either side closes. Confined to the
// proxy's thread; the coroutine of Serve keeps it alive.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `service` must outlive this object. `client` is its address, if the socket
  // does not know it.
  Connection(tcp::socket socket, Port port, Service* service,
             std::string client);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  asio::awaitable<void> Serve();

  // Answers that there are too many connections, and closes the connection.
  void Refuse();

  // Closes the guarded socket if its deadline has passed, and lets the exchange
  // check its own deadlines. Called about every second: deadlines are coarse,
  // so that none needs a separate timer.
  void CheckDeadline(uint64_t now_ns);
  // Closes the connection if no request is under way.
  void CloseIfIdle();
  void Close();
  // Closes the connection even in the middle of a request, as if the client had
  // gone.
  void Abort();
  // True if a drain has to wait for it.
  bool is_busy() const { return !idle_ && port_ == Port::kPublic; }

  asio::any_io_executor executor() { return socket_.get_executor(); }

  // For exchanges. Sends at once the bytes that fit, and the rest as the client
  // takes it; only the caller's buffers hold the rest. Returns false if the
  // client is gone.
  asio::awaitable<bool> Write(Buffers* buffers);
  asio::awaitable<bool> Answer(const RequestParser& request,
                               const LocalAnswer& answer,
                               const std::string& request_id);

  // Calls `gone` once if the client closes before Unwatch. A close goes
  // unnoticed if the client has already sent its next request.
  void Watch(std::function<void()> gone);
  void Unwatch() { gone_ = nullptr; }

  void Takes(size_t bytes, uint64_t waited_ns);
  // Closes `socket` (or the client's socket) once `seconds` have passed without
  // Unguard.
  void Guard(tcp::socket* socket, uint32_t seconds);
  void Guard(uint32_t seconds) { Guard(&socket_, seconds); }
  void Unguard() { guarded_ = nullptr; }

  // Makes each CheckDeadline call `check`, until this is called with null.
  void SetCheck(std::function<void(uint64_t now_ns)> check) {
    check_ = std::move(check);
  }
  // CORS header fields for the answer to the request under way (cors.h).
  const std::string& cors() const { return cors_; }

  // True if another request may follow this one.
  bool Stays(const RequestParser& request) const;

 private:
  // True if the peer is on this machine.
  bool IsLocal() const;
  asio::awaitable<bool> ServeOne();
  asio::awaitable<bool> Receive(RequestParser* request, bool whole);
  asio::awaitable<bool> AnswerLocally(RequestParser* request, Route route,
                                      const std::string& request_id);
  asio::awaitable<bool> ShowLog(const RequestParser& request,
                                const std::string& request_id);
  asio::awaitable<void> ServeFrames(const std::string& request_id);
  asio::awaitable<bool> ReceiveBody(RequestParser* request);
  asio::awaitable<void> RefuseRequest(const RequestParser& request,
                                      const ApiError& error,
                                      const std::string& request_id);
  Route RouteOf(const RequestParser& request) const;
  absl::optional<ApiError> RefusalOf(const RequestParser& request,
                                     Route route) const;
  std::string TextOf(LocalAnswer answer, bool to_head,
                     const std::string& request_id, bool stays) const;
  asio::awaitable<void> Linger();
  // True if requests of this route, or without a route, are recorded.
  bool Records(Route route) const;
  void BeginRecord(const RequestParser* request, const std::string& request_id);
  asio::awaitable<bool> FollowRequests(const RequestParser& request,
                                       const std::string& request_id);
  void ArmWatch();
  void OnReadable();

  tcp::socket socket_;
  const Port port_;
  Service* const service_;
  ByteBuffer received_;
  bool idle_ = false;
  std::string cors_;
  // The record of the request under way; until its header has come, a record
  // that is discarded.
  Recording* recording_ = nullptr;
  std::string address_;  // of the client, if it is recorded

  tcp::socket* guarded_ = nullptr;
  uint64_t deadline_ns_ = 0;
  uint64_t patience_ns_ = 0;  // left for the client to take its answer

  std::function<void(uint64_t)> check_;
  std::function<void()> gone_;
  bool watching_ = false;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_CONNECTION_H_
