#ifndef TESTS_PROXY_PEER_H_
#define TESTS_PROXY_PEER_H_

#include <cstdint>
#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::proxy_tests {

// One end of a TCP connection, played by a test. Every wait is bounded (20 s);
// a wait that times out fails the test and returns what has arrived so far.
class Peer {
 public:
  explicit Peer(driver::Descriptor socket) : socket_(std::move(socket)) {}
  // Connects to 127.0.0.1. With `room`, the system buffers about that many
  // bytes that were not received.
  static Peer To(uint16_t port, int room = 0);

  bool is_open() const { return socket_.valid(); }
  void Send(const std::string& bytes);
  // Sends as many of `bytes` as the socket takes without waiting, and returns
  // their number.
  size_t SendNow(const std::string& bytes);

  // Receives everything up to and including the next `mark`.
  std::string ReceiveUntil(const std::string& mark);
  // Exactly n bytes.
  std::string Receive(size_t n);
  // Receives everything until the other side closes.
  std::string ReceiveAll();
  // True if everything that has arrived was received.
  bool IsQuiet();
  // Waits for the other side to close; bytes that arrive instead fail the test.
  bool IsClosed();

  void Close() { socket_.Reset(); }
  // Closes with a reset instead of an orderly end.
  void Abort();

  // A message: its head, and the body with the length that its Content-Length
  // gives.
  struct Message {
    std::string head;
    std::string body;
    // Returns the first line's second word, which is an answer's status.
    int status() const;
    // Returns a field's value by its lower-case name; empty if there is none.
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

// A port on 127.0.0.1 where a test plays the engine. Whenever the listener
// looks for connections, it answers probes of health and models, and hides them
// from the test.
class Listener {
 public:
  Listener();
  uint16_t port() const { return port_; }
  Peer Accept();
  // Works like Accept, but the caller must answer probes.
  Peer AcceptAny();
  // True if every connection that has arrived was accepted.
  bool IsQuiet();
  // Makes further connections be refused.
  void Close() { socket_.Reset(); }

 private:
  // Takes a connection that is not a probe; false if none arrives in time.
  bool Look(int ms);

  driver::Descriptor socket_;
  driver::Descriptor next_;  // was taken and not accepted yet
  uint16_t port_ = 0;
};

// Returns "HTTP/1.1 200 OK" with this body and its length.
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
