#ifndef TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_
#define TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_

#include <cstdint>
#include <functional>
#include <string>

namespace stock_engine {

// HTTP for a group engine, as far as a proxy needs it: /health, and one
// completion after the other, each on a separate connection. Not thread-safe.
class HttpFront {
 public:
  // Listens on loopback, or ends the program.
  explicit HttpFront(uint16_t port);
  HttpFront(const HttpFront&) = delete;
  HttpFront& operator=(const HttpFront&) = delete;
  ~HttpFront();

  // Becomes readable when a client has connected.
  int descriptor() const { return listener_; }
  // Reads the client's request and answers it. Calls `answer` for a POST.
  void ServeOne(const std::function<void()>& answer) const;

  // Reads the client's request; if it asks for a completion, it is answered
  // later. Returns the connection, and sets *request; -1 if there is nothing
  // left to answer.
  int TakeOne(std::string* request) const;
  // Answers with a completion and closes the connection.
  static void Complete(int client);

 private:
  int listener_;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_
