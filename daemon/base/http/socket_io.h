#ifndef DAEMON_BASE_HTTP_SOCKET_IO_H_
#define DAEMON_BASE_HTTP_SOCKET_IO_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "daemon/base/http/byte_buffer.h"

namespace fineserve::proxy {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
// Inline room for 8, because most messages are gathered from a few places.
using Buffers = absl::InlinedVector<asio::const_buffer, 8>;

// Makes an awaited operation return its error as the first element of a tuple,
// instead of throwing it.
inline constexpr auto kTuple =
    asio::experimental::as_tuple(asio::use_awaitable);

// "127.0.0.1:8000", "[::1]:8000".
std::string AddressText(const tcp::endpoint& at);

// Makes the socket non-blocking and switches Nagle's algorithm off.
void Prepare(tcp::socket* socket);

// Makes the socket fail within some 10 s if its peer's machine, or the link to
// it, is gone: the kernel probes it, even if nothing is written. A peer process
// that is only stopped is not affected.
void WatchLink(tcp::socket* socket);

// Writes what the socket takes at once, without a turn of the event loop, but
// at most one turn's share; the rest stays in `buffers`.
error_code WriteNow(tcp::socket* socket, Buffers* buffers);

// Writes the rest as the peer makes room, and calls `progressed` for each
// piece.
asio::awaitable<error_code> WriteRest(tcp::socket* socket, Buffers* buffers,
                                      std::function<void(size_t)> progressed);

// Appends the available bytes to `buffer`, or waits for the next ones; at most
// `most` bytes. Returns asio::error::eof at the end.
asio::awaitable<error_code> ReadSome(tcp::socket* socket, ByteBuffer* buffer,
                                     size_t most);

// Connects to `host`, an address or a name, which AddressBook resolves.
asio::awaitable<error_code> Connect(tcp::socket* socket,
                                    const std::string& host, uint16_t port);

// True if the peer has closed its side, or reset the connection. False while
// unread bytes hide it.
bool IsClosedByPeer(tcp::socket* socket);

// True if there are bytes to read, or the peer has closed its side or reset the
// connection.
bool IsReadable(tcp::socket* socket);

// Lets one coroutine wait until a callback wakes it. Confined to a thread.
class Wakeup {
 public:
  // Ends the present wait; if there is none, the next one ends at once.
  void Set();
  asio::awaitable<void> Wait();

 private:
  bool set_ = false;
  std::function<void()> resume_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_SOCKET_IO_H_
