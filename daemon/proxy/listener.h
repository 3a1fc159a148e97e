#ifndef DAEMON_PROXY_LISTENER_H_
#define DAEMON_PROXY_LISTENER_H_

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fineserve::proxy {

// Makes `acceptor` listen on host:port; with port 0, the system chooses the
// port.
absl::Status Listen(const std::string& host, uint16_t port,
                    boost::asio::ip::tcp::acceptor* acceptor);

// Like Listen, for the clients' port of a proxy that is a unit of systemd:
// systemd keeps a copy of the socket (holder::DescriptorStore), and the proxy
// that it starts next continues with that socket if the address is the same.
// Clients that connect in between wait instead of being refused. With another
// parent process, and for port 0, it does the same as Listen. Call it once,
// before other threads exist.
absl::Status ListenAcrossRestarts(const std::string& host, uint16_t port,
                                  boost::asio::ip::tcp::acceptor* acceptor);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_LISTENER_H_
