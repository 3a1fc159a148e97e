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

// Speaks TLS 1.2 or 1.3 to servers outside the fleet, so that an Exchange can
// talk to them over a plain socket. The system's authorities, or those of
// $SSL_CERT_FILE, must vouch for a server's certificate, which must be valid
// for the server's name. Confined to the proxy's thread.
class TlsBack {
 public:
  // Does the TLS handshake with the server `host` on a connection to it, and
  // relays until either side has ended. Bytes written to the returned plain
  // socket reach the server encrypted. Unavailable, with the reason, if the
  // handshake fails.
  boost::asio::awaitable<absl::StatusOr<boost::asio::ip::tcp::socket>> Wrap(
      boost::asio::ip::tcp::socket connection, std::string host);

 private:
  // Created by the first Wrap, because it reads the authorities, some 150
  // certificates.
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TLS_TLS_BACK_H_
