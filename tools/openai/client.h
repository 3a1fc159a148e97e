#ifndef TOOLS_OPENAI_CLIENT_H_
#define TOOLS_OPENAI_CLIENT_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/openai/target.h"

namespace fineserve::openai {

using Clock = std::chrono::steady_clock;

// The answer to a request, with the moments at which it came.
struct Answer {
  int status = 0;     // of HTTP; 0 if no answer came
  std::string error;  // empty if a whole stream came
  Clock::time_point first_token, end;
  uint32_t output_tokens = 0, prompt_tokens = 0;
  // When each event came, if the client notes them; the first one is the first
  // token.
  std::vector<Clock::time_point> events;
  bool is_cut = false;  // the connection ended before the answer did
};

// An HTTP/1.1 client for many streams at once. Connections are kept for the
// next request. If the peer has closed a kept connection and nothing of the
// answer has come, the request is sent once more on a new one. Confined to the
// context's thread.
class Client {
 public:
  Client(boost::asio::io_context* context, Target target,
         std::chrono::milliseconds timeout, bool notes_events = false);
  ~Client();

  using Fields = std::vector<std::pair<std::string, std::string>>;

  // Posts `body` and reads the stream to its end. Never throws; errors are in
  // the answer.
  boost::asio::awaitable<Answer> Post(std::string body, Fields fields);

 private:
  struct Connection;
  using Kept = std::unique_ptr<Connection>;

  boost::asio::awaitable<bool> Connect(Connection* connection, Answer* answer);
  // Returns false if nothing of an answer came.
  boost::asio::awaitable<bool> Exchange(Kept connection,
                                        const std::string& body,
                                        const Fields& fields, Answer* answer);

  boost::asio::io_context& context_;
  const Target target_;
  const std::chrono::milliseconds timeout_;
  const bool notes_events_;
  std::vector<Kept> idle_;
};

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_CLIENT_H_
