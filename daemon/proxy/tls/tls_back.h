#ifndef DAEMON_PROXY_TLS_TLS_BACK_H_
#define DAEMON_PROXY_TLS_TLS_BACK_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace boost::asio::ssl {
class context;
}

namespace fineserve::proxy {

// Speaks TLS 1.2 or 1.3 to servers outside the fleet, so that an Exchange talks
// to them by a plain socket. A server's certificate must be valid for its name
// by the system's authorities, or those of $SSL_CERT_FILE. Confined to the
// proxy's thread.
class TlsBack {
 public:
  // Shakes hands with the server `host` on a connection to it, and relays until
  // either side has ended. The plain socket's bytes reach the server encrypted.
  // Unavailable, with the reason, if the handshake fails.
  boost::asio::awaitable<absl::StatusOr<boost::asio::ip::tcp::socket>> Wrap(
      boost::asio::ip::tcp::socket connection, std::string host);

 private:
  // Made by the first Wrap: it reads the authorities, some 150 certificates.
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TLS_TLS_BACK_H_
