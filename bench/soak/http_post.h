#ifndef BENCH_SOAK_HTTP_POST_H_
#define BENCH_SOAK_HTTP_POST_H_

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::bench {

struct HttpQuestion {
  uint16_t port = 0;  // on 127.0.0.1
  std::string body;   // JSON, for /v1/completions
  std::vector<std::pair<std::string, std::string>> fields;
  // The client goes away as soon as anything of the answer has come.
  bool leaves = false;
};

struct HttpAnswer {
  int status = 0;                   // 0: nothing came
  std::string reason, retry_after;  // of a refusal's header
  std::string body;                 // as far as it came
  std::string error;                // why it is not whole; empty if it is
  bool timed_out = false;
};

// Posts on a new connection, which it closes, and reads the whole answer.
// `limit` bounds all of it. Never throws.
boost::asio::awaitable<HttpAnswer> Post(HttpQuestion question,
                                        std::chrono::seconds limit);

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_HTTP_POST_H_
