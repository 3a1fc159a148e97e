#ifndef BENCH_PROXY_TCP_H_
#define BENCH_PROXY_TCP_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace fineserve::bench {

// Sockets on 127.0.0.1; what fails ends the bench with a message.

// A nonblocking listener on any port.
int Listen(uint16_t* port);
// A connection, nonblocking once it stands.
int ConnectTo(uint16_t port);
void SetNoDelay(int fd);
// Little enough to fit into the socket's buffer.
void SendAll(int fd, const std::string& bytes);

// Whether the server on this port answers GET /ready with 200.
bool IsReady(uint16_t port);

// Whether the bytes end with a message's end: of its Content-Length, or the
// last chunk, or else its head.
bool IsWholeMessage(const std::string& bytes);

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_TCP_H_
