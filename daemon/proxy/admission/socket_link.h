#ifndef DAEMON_PROXY_ADMISSION_SOCKET_LINK_H_
#define DAEMON_PROXY_ADMISSION_SOCKET_LINK_H_

#include <boost/asio/posix/stream_descriptor.hpp>

#include "daemon/proxy/admission/daemon_link.h"
#include "daemon/wire/socket.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// To a daemon of another machine, by ZeroMQ, whose thread encrypts and
// reconnects. Nothing tells of a new connection: the daemon refuses what comes
// on it until it is greeted.
class SocketLink final : public DaemonLink {
 public:
  SocketLink(boost::asio::io_context* io, wire::ClientSocket socket,
             Hearer hearer);

  bool Send(absl::string_view bytes) override;
  void Receive() override;

 private:
  void Listen();
  void ReceiveSoon();

  boost::asio::io_context* const io_;
  const Hearer hearer_;
  wire::ClientSocket socket_;
  boost::asio::posix::stream_descriptor readable_;
  bool posted_ = false;  // Receive
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_SOCKET_LINK_H_
