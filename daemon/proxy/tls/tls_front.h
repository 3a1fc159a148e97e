#ifndef DAEMON_PROXY_TLS_TLS_FRONT_H_
#define DAEMON_PROXY_TLS_TLS_FRONT_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace boost::asio::ssl {
class context;
}

namespace fineserve::proxy {

// Terminates TLS in front of the proxy's connections: each client's bytes come
// out of a local socket, which a Connection serves like any other, and the
// bytes written to that socket go back encrypted. So the code behind it knows
// nothing of TLS. Supports TLS 1.2 and 1.3, and inside TLS only HTTP/1.1.
// Confined to the proxy's thread.
class TlsFront {
 public:
  // Loads the files, which are in PEM; the certificate's file may hold its
  // chain. An error says which file is wrong, and why.
  static absl::StatusOr<std::unique_ptr<TlsFront>> Load(
      const std::string& cert_path, const std::string& key_path);
  // Reads the files again, for future connections. After an error the present
  // files stay in use.
  absl::Status Reload();

  // Receives the plain socket, and the client's address.
  using Welcome = std::function<void(boost::asio::ip::tcp::socket plain,
                                     const std::string& client)>;
  // Does the TLS handshake with the client, calls `welcome`, and relays until
  // either side has ended. This object must outlive the call.
  boost::asio::awaitable<void> Serve(boost::asio::ip::tcp::socket socket,
                                     Welcome welcome);

  // Time at which the certificate in use expires; InfiniteFuture if that is not
  // known.
  absl::Time expiry() const { return expiry_; }

  // Number of clients in the handshake or being relayed.
  size_t open() const { return open_; }
  uint64_t failed_handshakes() const { return failed_; }

 private:
  using Context = boost::asio::ssl::context;
  TlsFront(std::string cert_path, std::string key_path)
      : cert_path_(std::move(cert_path)), key_path_(std::move(key_path)) {}

  const std::string cert_path_, key_path_;
  std::shared_ptr<Context> context_;
  absl::Time expiry_;
  size_t open_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TLS_TLS_FRONT_H_
