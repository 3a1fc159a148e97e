#include "daemon/base/http/socket_io.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/http/address_book.h"

namespace fineserve::proxy {
namespace {

// Forgets the first `n` bytes.
void Advance(Buffers* buffers, size_t n) {
  auto first = buffers->begin();
  while (first != buffers->end() && n >= first->size()) {
    n -= first->size();
    ++first;
  }
  buffers->erase(buffers->begin(), first);
  if (n > 0) buffers->front() += n;
}

// Like recv of one byte, which stays in the socket.
ssize_t Peek(tcp::socket* socket) {
  char byte;
  return recv(socket->native_handle(), &byte, sizeof(byte),
              MSG_PEEK | MSG_DONTWAIT);
}

// Limit on the bytes of a large body that are written in one turn of the loop,
// because other connections wait that long.
constexpr size_t kMostAtOnce = 256 << 10;

bool IsShort(const Buffers& buffers) {
  return asio::buffer_size(buffers) <= kMostAtOnce;
}

Buffers Beginning(const Buffers& buffers) {
  Buffers beginning;
  size_t left = kMostAtOnce;
  for (const asio::const_buffer& buffer : buffers) {
    if (left == 0) break;
    beginning.push_back(asio::buffer(buffer, left));
    left -= beginning.back().size();
  }
  return beginning;
}

}  // namespace

std::string AddressText(const tcp::endpoint& at) {
  const std::string host = at.address().to_string();
  return at.address().is_v6() ? absl::StrCat("[", host, "]:", at.port())
                              : absl::StrCat(host, ":", at.port());
}

void Prepare(tcp::socket* socket) {
  error_code ignored;
  socket->non_blocking(true, ignored);
  socket->set_option(tcp::no_delay(true), ignored);
}

void WatchLink(tcp::socket* socket) {
  constexpr int kIdleS = 4, kPeriodS = 2, kProbes = 3;
  constexpr unsigned kUnansweredMs = 10'000;
  const int fd = socket->native_handle();
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof(kIdleS));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kPeriodS, sizeof(kPeriodS));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs,
             sizeof(kUnansweredMs));
}

error_code WriteNow(tcp::socket* socket, Buffers* buffers) {
  error_code e;
  for (size_t n = 0; !buffers->empty() && !e && n < kMostAtOnce;) {
    const size_t now = IsShort(*buffers)
                           ? socket->write_some(*buffers, e)
                           : socket->write_some(Beginning(*buffers), e);
    Advance(buffers, now);
    n += now;
  }
  return e == asio::error::would_block ? error_code() : e;
}

asio::awaitable<error_code> WriteRest(tcp::socket* socket, Buffers* buffers,
                                      std::function<void(size_t)> progressed) {
  while (!buffers->empty()) {
    const Buffers some = Beginning(*buffers);
    const auto [e, n] = co_await socket->async_write_some(some, kTuple);
    if (e) co_return e;
    Advance(buffers, n);
    progressed(n);
  }
  co_return error_code();
}

asio::awaitable<error_code> ReadSome(tcp::socket* socket, ByteBuffer* buffer,
                                     size_t most) {
  const auto [e, n] = co_await socket->async_read_some(
      asio::buffer(buffer->Prepare(most), most), kTuple);
  buffer->Commit(n);
  co_return e;
}

asio::awaitable<error_code> Connect(tcp::socket* socket,
                                    const std::string& host, uint16_t port) {
  error_code e;
  const asio::ip::address address = asio::ip::make_address(host, e);
  if (!e) {
    const auto [connected] =
        co_await socket->async_connect({address, port}, kTuple);
    co_return connected;
  }
  // Every executor here is an io_context's.
  AddressBook& book = AddressBook::Of(static_cast<asio::io_context*>(
      &asio::query(socket->get_executor(), asio::execution::context)));
  std::vector<tcp::endpoint> endpoints;
  for (const asio::ip::address& found : co_await book.Find(host)) {
    endpoints.emplace_back(found, port);
  }
  if (endpoints.empty()) co_return asio::error::host_not_found;
  const auto [connected, _] =
      co_await asio::async_connect(*socket, endpoints, kTuple);
  if (connected) book.Forget(host);
  co_return connected;
}

bool IsClosedByPeer(tcp::socket* socket) {
  const ssize_t n = Peek(socket);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool IsReadable(tcp::socket* socket) {
  const ssize_t n = Peek(socket);
  return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

void Wakeup::Set() {
  set_ = true;
  if (resume_) std::exchange(resume_, nullptr)();
}

asio::awaitable<void> Wakeup::Wait() {
  if (!set_) {
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        [this](auto handler) {
          // Shared, because std::function copies its target.
          auto held = std::make_shared<decltype(handler)>(std::move(handler));
          resume_ = [held] { asio::post(std::move(*held)); };
        },
        asio::use_awaitable);
  }
  set_ = false;
}

}  // namespace fineserve::proxy
