#ifndef DAEMON_PROXY_LISTENER_H_
#define DAEMON_PROXY_LISTENER_H_

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fineserve::proxy {

// Makes `acceptor` listen on host:port; port 0: the system chooses.
absl::Status Listen(const std::string& host, uint16_t port,
                    boost::asio::ip::tcp::acceptor* acceptor);

// The same for the clients' port of a proxy that is a unit of systemd: systemd
// keeps a copy of the socket (holder::DescriptorStore), and the proxy that it
// starts next goes on with it if the address is the same. Clients that connect
// in between wait instead of being refused. With another parent, and for port
// 0, it is Listen. To be called once, before other threads are there.
absl::Status ListenAcrossRestarts(const std::string& host, uint16_t port,
                                  boost::asio::ip::tcp::acceptor* acceptor);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_LISTENER_H_
