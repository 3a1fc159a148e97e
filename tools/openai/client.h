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

#include "absl/strings/string_view.h"
#include "tools/openai/target.h"

namespace fineserve::openai {

using Clock = std::chrono::steady_clock;

// The answer to a request, with the arrival times of its events.
struct Answer {
  int status = 0;     // of HTTP; 0 if no answer came
  std::string error;  // empty if a whole stream came
  Clock::time_point first_token, end;
  uint32_t output_tokens = 0, prompt_tokens = 0;
  // The arrival time of each event, if the client notes them; the first event
  // is the first token.
  std::vector<Clock::time_point> events;
  bool is_cut = false;  // the connection ended before the answer did
};

// An HTTP/1.1 client for many streams at once. Keeps connections for the next
// request. If the peer has closed a kept connection and no part of the answer
// has arrived, sends the request once more on a new connection. Confined to the
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
  // Returns false if no part of an answer arrived.
  boost::asio::awaitable<bool> Exchange(Kept connection,
                                        const std::string& body,
                                        const Fields& fields, Answer* answer);

  boost::asio::io_context& context_;
  const Target target_;
  const std::chrono::milliseconds timeout_;
  const bool notes_events_;
  std::vector<Kept> idle_;
};

// Makes short words, with one space between them. A different `seed` gives
// different words, so that no prefix cache helps. In tinyserve each word is a
// token; other tokenizers need slightly more tokens.
std::string Prompt(uint32_t words, uint64_t seed);

// Makes the body of a streaming completion (or, if `chat`, of a chat with one
// message) of `words` words that generates exactly `output_tokens` if the
// engine obeys ignore_eos.
std::string Body(const std::string& model, uint32_t words,
                 uint32_t output_tokens, uint64_t seed, bool chat);

// Reads an OpenAI stream (server-sent events) from the body's bytes as they
// arrive, in any pieces. Parses only events with usage or an error; counts the
// others.
class StreamReader {
 public:
  void Feed(absl::string_view bytes);

  // Events with data, except [DONE]. The first event means the first token, for
  // chats too (vLLM sends the role with the first token).
  uint64_t events() const { return events_; }
  bool done() const { return done_; }                  // [DONE] came
  const std::string& error() const { return error_; }  // empty if none

  // The generated tokens by the engine's count (include_usage); without it, one
  // token per event.
  uint32_t output_tokens() const;
  uint32_t prompt_tokens() const { return prompt_tokens_; }  // 0: unknown

 private:
  void Line(absl::string_view line);
  void Parse(absl::string_view json);

  // A longer event cannot be OpenAI's; it is cut off and reported.
  static constexpr size_t kMostLineBytes = 1 << 20;

  std::string partial_;  // the line that has not ended
  uint64_t events_ = 0;
  bool done_ = false;
  std::string error_;
  uint32_t prompt_tokens_ = 0;
  uint32_t completion_tokens_ = 0;
};

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_CLIENT_H_
