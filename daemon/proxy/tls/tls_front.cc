#include "daemon/proxy/tls/tls_front.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {
namespace {

namespace ssl = asio::ssl;

constexpr std::chrono::seconds kHandshake(10);
// Time for a client to take the bytes that the proxy has written.
constexpr std::chrono::seconds kLastBytes(60);
// For the client's part of the goodbye.
constexpr std::chrono::seconds kGoodbye(2);
constexpr size_t kPieceBytes = 16 << 10;  // a record of TLS

// Chooses HTTP/1.1 if the client offers it among others. A client that offers
// none of it is served HTTP/1.1 all the same.
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
  error_code e;
  context->set_options(ssl::context::default_workarounds |
                           ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                           ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                           SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION,
                       e);
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

// One client's connection. Kept alive by its pumps.
struct Session {
  Session(tcp::socket socket, std::shared_ptr<ssl::context> its)
      : context(std::move(its)),
        tls(std::move(socket), *context),
        inner(tls.get_executor()),
        deadline(tls.get_executor()) {}

  // Closes the client's socket unless something else is due until then.
  void CloseAfter(std::chrono::seconds rest,
                  const std::shared_ptr<Session>& self) {
    deadline.expires_after(rest);
    deadline.async_wait([self](error_code e) {
      error_code ignored;
      if (!e) self->tls.lowest_layer().close(ignored);
    });
  }

  const std::shared_ptr<ssl::context> context;
  ssl::stream<tcp::socket> tls;
  tcp::socket inner;  // the proxy's connection has the other end
  asio::steady_timer deadline;
};

using SessionPtr = std::shared_ptr<Session>;

// Makes inner and gives its other end; not open if there is no descriptor left.
tcp::socket MakePlain(Session* session) {
  tcp::socket plain(session->inner.get_executor());
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (socketpair(AF_UNIX, kType, 0, ends) != 0) return plain;
  error_code e, other;
  session->inner.assign(tcp::v4(), ends[0], e);
  plain.assign(tcp::v4(), ends[1], other);
  if (e) close(ends[0]);
  if (other) close(ends[1]);
  return plain;
}

asio::awaitable<void> FromClient(SessionPtr session) {
  std::array<char, kPieceBytes> bytes;
  for (;;) {
    const auto [e, n] =
        co_await session->tls.async_read_some(asio::buffer(bytes), kTuple);
    if (e) break;
    const auto [unsent, sent] = co_await asio::async_write(
        session->inner, asio::buffer(bytes.data(), n), kTuple);
    if (unsent) co_return;
  }
  error_code ignored;
  session->inner.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> ToClient(SessionPtr session) {
  std::array<char, kPieceBytes> bytes;
  for (;;) {
    const auto [e, n] =
        co_await session->inner.async_read_some(asio::buffer(bytes), kTuple);
    if (e) break;
    const auto [unsent, sent] = co_await asio::async_write(
        session->tls, asio::buffer(bytes.data(), n), kTuple);
    if (unsent) break;
  }
  session->CloseAfter(kGoodbye, session);
  co_await session->tls.async_shutdown(kTuple);
  session->deadline.cancel();
  error_code ignored;
  session->tls.lowest_layer().close(ignored);
  session->inner.close(ignored);
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
  // Taken back whenever this ends, even with the proxy.
  struct Count {
    explicit Count(size_t* n) : open(n) { ++*open; }
    ~Count() { --*open; }
    size_t* const open;
  } const count(&open_);
  const std::string client = AddressOf(socket);
  const auto session = std::make_shared<Session>(std::move(socket), context_);
  session->CloseAfter(kHandshake, session);
  const auto [e] =
      co_await session->tls.async_handshake(ssl::stream_base::server, kTuple);
  session->deadline.cancel();
  if (e) {
    ++failed_;
    co_return;
  }
  tcp::socket plain = MakePlain(session.get());
  if (!plain.is_open() || !session->inner.is_open()) co_return;
  // The proxy has closed its end, perhaps because the client takes nothing.
  session->inner.async_wait(tcp::socket::wait_error, [session](error_code e) {
    if (!e) session->CloseAfter(kLastBytes, session);
  });
  welcome(std::move(plain), client);
  asio::co_spawn(session->inner.get_executor(), FromClient(session),
                 asio::detached);
  co_await ToClient(session);
}

}  // namespace fineserve::proxy
