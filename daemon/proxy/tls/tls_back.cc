#include "daemon/proxy/tls/tls_back.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/proxy/tls/tls_session.h"

namespace fineserve::proxy {
namespace {

namespace ssl = asio::ssl;

std::shared_ptr<ssl::context> ClientContext() {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  RestrictTls(context.get());
  error_code ignored;  // without authorities no certificate is valid
  context->set_default_verify_paths(ignored);
  return context;
}

// Accepts only a certificate for this name.
void Expect(const std::string& host, ssl::stream<tcp::socket>* tls) {
  error_code is_name;
  asio::ip::make_address(host, is_name);
  // RFC 6066, 3: a literal address is not allowed as a server name.
  if (is_name) SSL_set_tlsext_host_name(tls->native_handle(), host.c_str());
  tls->set_verify_mode(ssl::verify_peer);
  tls->set_verify_callback(ssl::host_name_verification(host));
}

absl::Status Failed(const std::string& host, const error_code& e, SSL* tls) {
  const long verdict = SSL_get_verify_result(tls);  // NOLINT: OpenSSL's type
  return absl::UnavailableError(
      absl::StrCat("TLS with ", host, " failed: ",
                   verdict != X509_V_OK ? X509_verify_cert_error_string(verdict)
                                        : e.message()));
}

}  // namespace

asio::awaitable<absl::StatusOr<tcp::socket>> TlsBack::Wrap(
    tcp::socket connection, std::string host) {
  if (context_ == nullptr) context_ = ClientContext();
  const auto session =
      std::make_shared<TlsSession>(std::move(connection), context_);
  Expect(host, session->tls());
  const error_code e = co_await session->ShakeHands(ssl::stream_base::client);
  if (e) co_return Failed(host, e, session->tls()->native_handle());
  tcp::socket plain = session->MakePlain();
  if (!plain.is_open()) {
    co_return absl::UnavailableError("no descriptor is left for TLS");
  }
  asio::co_spawn(plain.get_executor(), Relay(session), asio::detached);
  co_return plain;
}

}  // namespace fineserve::proxy
