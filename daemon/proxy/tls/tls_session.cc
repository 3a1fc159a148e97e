#include "daemon/proxy/tls/tls_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace fineserve::proxy {
namespace {

namespace ssl = asio::ssl;

constexpr std::chrono::seconds kHandshake(10);
// Time for the peer to take the bytes that the proxy has written.
constexpr std::chrono::seconds kLastBytes(60);
// Limit on the wait for the peer's part of the TLS shutdown.
constexpr std::chrono::seconds kGoodbye(2);
constexpr size_t kPieceBytes = 16 << 10;  // a record of TLS

// Passes bytes on until one side ends. Returns true if that side is `from`.
template <typename From, typename To>
asio::awaitable<bool> Pass(From* from, To* to) {
  std::array<char, kPieceBytes> bytes;
  for (;;) {
    const auto [e, n] =
        co_await from->async_read_some(asio::buffer(bytes), kTuple);
    if (e) co_return true;
    const auto [unsent, sent] =
        co_await asio::async_write(*to, asio::buffer(bytes.data(), n), kTuple);
    if (unsent) co_return false;
  }
}

}  // namespace

void RestrictTls(ssl::context* context) {
  error_code ignored;
  context->set_options(ssl::context::default_workarounds |
                           ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                           ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                           SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION,
                       ignored);
}

TlsSession::TlsSession(tcp::socket peer, std::shared_ptr<ssl::context> context)
    : context_(std::move(context)),
      tls_(std::move(peer), *context_),
      inner_(tls_.get_executor()),
      deadline_(tls_.get_executor()) {}

void TlsSession::CloseAfter(std::chrono::seconds rest) {
  deadline_.expires_after(rest);
  deadline_.async_wait([self = shared_from_this()](error_code e) {
    error_code ignored;
    if (!e) self->tls_.lowest_layer().close(ignored);
  });
}

asio::awaitable<error_code> TlsSession::ShakeHands(
    ssl::stream_base::handshake_type as) {
  CloseAfter(kHandshake);
  const auto [e] = co_await tls_.async_handshake(as, kTuple);
  deadline_.cancel();
  co_return e;
}

tcp::socket TlsSession::MakePlain() {
  tcp::socket plain(inner_.get_executor());
  int ends[2];
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (socketpair(AF_UNIX, kType, 0, ends) != 0) return plain;
  error_code e, other;
  inner_.assign(tcp::v4(), ends[0], e);
  plain.assign(tcp::v4(), ends[1], other);
  if (e) close(ends[0]);
  if (other) close(ends[1]);
  if (!inner_.is_open()) plain.close(other);
  return plain;
}

asio::awaitable<void> TlsSession::FromPeer(
    std::shared_ptr<TlsSession> session) {
  if (!co_await Pass(&session->tls_, &session->inner_)) co_return;
  error_code ignored;
  session->inner_.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> TlsSession::ToPeer(std::shared_ptr<TlsSession> session) {
  co_await Pass(&session->inner_, &session->tls_);
  session->CloseAfter(kGoodbye);
  co_await session->tls_.async_shutdown(kTuple);
  session->deadline_.cancel();
  error_code ignored;
  session->tls_.lowest_layer().close(ignored);
  session->inner_.close(ignored);
}

asio::awaitable<void> Relay(std::shared_ptr<TlsSession> session) {
  // Limits the time left once the proxy has closed its end, perhaps because the
  // peer reads nothing.
  session->inner_.async_wait(tcp::socket::wait_error, [session](error_code e) {
    if (!e) session->CloseAfter(kLastBytes);
  });
  asio::co_spawn(session->inner_.get_executor(), TlsSession::FromPeer(session),
                 asio::detached);
  co_await TlsSession::ToPeer(session);
}

}  // namespace fineserve::proxy
