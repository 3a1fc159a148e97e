#ifndef BENCH_PROXY_TCP_H_
#define BENCH_PROXY_TCP_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace fineserve::bench {

// Sockets on 127.0.0.1. A failure ends the bench with a message.

// Makes a non-blocking listener on any port.
int Listen(uint16_t* port);
// Makes a connection that becomes non-blocking once it is established.
int ConnectTo(uint16_t port);
void SetNoDelay(int fd);
// `bytes` must fit into the socket's buffer.
void SendAll(int fd, const std::string& bytes);

// True if the server on this port answers GET /ready with 200.
bool IsReady(uint16_t port);

// True if the bytes end where an HTTP message ends: by its Content-Length, at
// its last chunk, or otherwise after its head.
bool IsWholeMessage(const std::string& bytes);

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_TCP_H_
