#include "daemon/proxy/admission/socket_link.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <string>
#include <utility>

#include "absl/types/optional.h"

namespace fineserve::proxy {

namespace asio = boost::asio;
using boost::system::error_code;

SocketLink::SocketLink(asio::io_context* io, wire::ClientSocket socket,
                       Hearer hearer)
    : io_(io),
      hearer_(std::move(hearer)),
      socket_(std::move(socket)),
      // A duplicate, because the socket's descriptor belongs to ZeroMQ.
      readable_(*io, dup(socket_.descriptor())) {
  Listen();
}

void SocketLink::Listen() {
  readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](error_code e) {
                         if (e) return;
                         Receive();
                         Listen();
                       });
}

bool SocketLink::Send(absl::string_view bytes) {
  if (!socket_.Send(bytes)) return false;
  // ZeroMQ may have swallowed the signal that something can be read.
  ReceiveSoon();
  return true;
}

void SocketLink::Receive() {
  while (const absl::optional<std::string> bytes = socket_.Receive()) {
    hearer_.on_message(*bytes);
  }
}

// Once the present callback has returned.
void SocketLink::ReceiveSoon() {
  if (std::exchange(posted_, true)) return;
  asio::post(*io_, [this] {
    posted_ = false;
    Receive();
  });
}

}  // namespace fineserve::proxy
