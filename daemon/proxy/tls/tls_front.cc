#include "daemon/proxy/tls/tls_front.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <time.h>

#include <boost/asio/ssl.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/proxy/tls/tls_session.h"

namespace fineserve::proxy {
namespace {

namespace ssl = asio::ssl;

// Chooses HTTP/1.1 if the client offers it. A client that does not offer it is
// served HTTP/1.1 nevertheless.
int ChooseHttp11(SSL*, const unsigned char** out, unsigned char* out_bytes,
                 const unsigned char* in, unsigned in_bytes, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_bytes, kHttp11,
                                          sizeof(kHttp11) - 1, in, in_bytes);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

absl::Status Trouble(const char* flag, const std::string& path,
                     const error_code& e) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": cannot use ", path, ": ", e.message()));
}

absl::StatusOr<std::shared_ptr<ssl::context>> MakeContext(
    const std::string& cert_path, const std::string& key_path) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  RestrictTls(context.get());
  error_code e;
  context->use_certificate_chain_file(cert_path, e);
  if (e) return Trouble("--tls-cert", cert_path, e);
  context->use_private_key_file(key_path, ssl::context::pem, e);
  if (e) return Trouble("--tls-key", key_path, e);
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tls-key: ", key_path, " is not the key of ", cert_path));
  }
  SSL_CTX_set_alpn_select_cb(context->native_handle(), ChooseHttp11, nullptr);
  return context;
}

absl::Time ExpiryOf(ssl::context* context) {
  X509* const certificate = SSL_CTX_get0_certificate(context->native_handle());
  tm utc = {};
  if (certificate == nullptr ||
      ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &utc) != 1) {
    return absl::InfiniteFuture();
  }
  return absl::FromTM(utc, absl::UTCTimeZone());
}

std::string AddressOf(const tcp::socket& socket) {
  error_code e;
  const tcp::endpoint at = socket.remote_endpoint(e);
  return e ? "" : AddressText(at);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFront>> TlsFront::Load(
    const std::string& cert_path, const std::string& key_path) {
  std::unique_ptr<TlsFront> front(new TlsFront(cert_path, key_path));
  const absl::Status s = front->Reload();
  if (!s.ok()) return s;
  return front;
}

absl::Status TlsFront::Reload() {
  absl::StatusOr<std::shared_ptr<Context>> context =
      MakeContext(cert_path_, key_path_);
  if (!context.ok()) return context.status();
  context_ = *std::move(context);
  expiry_ = ExpiryOf(context_.get());
  return absl::OkStatus();
}

asio::awaitable<void> TlsFront::Serve(tcp::socket socket, Welcome welcome) {
  // Counts this connection as open until the coroutine ends, even if the whole
  // proxy ends.
  struct Count {
    explicit Count(size_t* n) : open(n) { ++*open; }
    ~Count() { --*open; }
    size_t* const open;
  } const count(&open_);
  const std::string client = AddressOf(socket);
  const auto session =
      std::make_shared<TlsSession>(std::move(socket), context_);
  const error_code e = co_await session->ShakeHands(ssl::stream_base::server);
  if (e) {
    ++failed_;
    co_return;
  }
  tcp::socket plain = session->MakePlain();
  if (!plain.is_open()) co_return;
  welcome(std::move(plain), client);
  co_await Relay(session);
}

}  // namespace fineserve::proxy
