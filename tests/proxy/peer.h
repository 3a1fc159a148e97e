#ifndef TESTS_PROXY_PEER_H_
#define TESTS_PROXY_PEER_H_

#include <cstdint>
#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::proxy_tests {

// One end of a TCP connection, played by a test. Every wait is bounded (20 s);
// a wait that runs into the bound fails the test and gives what has come so
// far.
class Peer {
 public:
  explicit Peer(driver::Descriptor socket) : socket_(std::move(socket)) {}
  // A connection to 127.0.0.1. With `room` the system holds about so many bytes
  // that were not received.
  static Peer To(uint16_t port, int room = 0);

  bool is_open() const { return socket_.valid(); }
  void Send(const std::string& bytes);
  // Sends as many of `bytes` as are taken without waiting, and returns how
  // many.
  size_t SendNow(const std::string& bytes);

  // Everything up to and including the next `mark`.
  std::string ReceiveUntil(const std::string& mark);
  // Exactly n bytes.
  std::string Receive(size_t n);
  // Everything until the other side closes.
  std::string ReceiveAll();
  // True if everything that has come was received.
  bool IsQuiet();
  // Waits for the other side to close; what came instead fails the test.
  bool IsClosed();

  void Close() { socket_.Reset(); }
  // Closes with a reset instead of an orderly end.
  void Abort();

  // The next message: its head, and the body that its Content-Length says.
  struct Message {
    std::string head;
    std::string body;
    // The first line's second word, which is an answer's status.
    int status() const;
    // A field's value by its name in lower case; empty: none.
    std::string Field(const std::string& name) const;
  };
  Message ReceiveMessage();
  // Receives the next message, and answers with these bytes.
  void Answer(const std::string& bytes) {
    ReceiveMessage();
    Send(bytes);
  }
  // The next message's body of one chunk.
  std::string ReceiveChunk();

 private:
  bool Fill();  // more into buffered_; false at the end or the bound

  driver::Descriptor socket_;
  std::string buffered_;
};

// A port on 127.0.0.1 where a test plays the engine. Probes of its health and
// models are answered, and not shown, whenever it looks for connections.
class Listener {
 public:
  Listener();
  uint16_t port() const { return port_; }
  Peer Accept();
  // The same, but a probe is the caller's to answer.
  Peer AcceptAny();
  // True if every connection that has come was accepted.
  bool IsQuiet();
  // From now on connections are refused.
  void Close() { socket_.Reset(); }

 private:
  // Takes a connection that is no probe; false if none comes in time.
  bool Look(int ms);

  driver::Descriptor socket_;
  driver::Descriptor next_;  // was taken and not accepted yet
  uint16_t port_ = 0;
};

// "HTTP/1.1 200 OK" with this body and its length.
std::string Plain(const std::string& body);
// The head of a stream, and its pieces.
extern const char kStreamHead[];
std::string Chunk(const std::string& bytes);
extern const char kLastChunk[];
// A POST of this body.
std::string Post(const std::string& path, const std::string& body,
                 const std::string& fields = "");

}  // namespace fineserve::proxy_tests

#endif  // TESTS_PROXY_PEER_H_
