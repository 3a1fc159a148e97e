#ifndef TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_
#define TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_

#include <cstdint>
#include <functional>
#include <string>

namespace stock_engine {

// HTTP for a group engine, as much as a proxy asks for: /health, and one
// completion after the other, each on a connection of its own. Not thread-safe.
class HttpFront {
 public:
  // Listens on loopback, or ends the program.
  explicit HttpFront(uint16_t port);
  HttpFront(const HttpFront&) = delete;
  HttpFront& operator=(const HttpFront&) = delete;
  ~HttpFront();

  // Readable: a client has connected.
  int descriptor() const { return listener_; }
  // Reads its request and answers it. `answer` is called for a POST.
  void ServeOne(const std::function<void()>& answer) const;

  // Reads its request, which is answered later if it asks for a completion.
  // Returns the connection, with the request; -1 if there is nothing to answer.
  int TakeOne(std::string* request) const;
  // Answers with a completion and closes the connection.
  static void Complete(int client);

 private:
  int listener_;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_HTTP_FRONT_H_
