#ifndef DAEMON_PROXY_TLS_TLS_SESSION_H_
#define DAEMON_PROXY_TLS_TLS_SESSION_H_

#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

#include "daemon/base/http/socket_io.h"

namespace fineserve::proxy {

// Connects one peer that speaks TLS with a local socket: bytes that are written
// to either come out of the other. Confined to the proxy's thread; kept alive
// by its relay.
class TlsSession : public std::enable_shared_from_this<TlsSession> {
 public:
  TlsSession(tcp::socket peer, std::shared_ptr<asio::ssl::context> context);

  // The TLS stream, for setting names and certificates before the handshake.
  asio::ssl::stream<tcp::socket>* tls() { return &tls_; }

  // Does the TLS handshake in bounded time: returns an error also if the peer
  // does not answer in time.
  asio::awaitable<error_code> ShakeHands(
      asio::ssl::stream_base::handshake_type as);

  // Returns the other end of the local socket, after the handshake. It is not
  // open if there is no descriptor left.
  tcp::socket MakePlain();

 private:
  friend asio::awaitable<void> Relay(std::shared_ptr<TlsSession> session);
  static asio::awaitable<void> FromPeer(std::shared_ptr<TlsSession> session);
  static asio::awaitable<void> ToPeer(std::shared_ptr<TlsSession> session);
  // Closes the peer's socket after `rest`, unless another deadline is set
  // before.
  void CloseAfter(std::chrono::seconds rest);

  const std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<tcp::socket> tls_;
  tcp::socket inner_;
  asio::steady_timer deadline_;
};

// Allows only TLS 1.2 and 1.3, without renegotiation or compression.
void RestrictTls(asio::ssl::context* context);

// Passes bytes both ways until either side has ended.
asio::awaitable<void> Relay(std::shared_ptr<TlsSession> session);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TLS_TLS_SESSION_H_
