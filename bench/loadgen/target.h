#ifndef BENCH_LOADGEN_TARGET_H_
#define BENCH_LOADGEN_TARGET_H_

#include <string>

#include "absl/status/statusor.h"

namespace fineserve::loadgen {

// Where to send: http://host:port and the path of completions or chats.
struct Target {
  std::string host;
  std::string port;
  std::string path;
  std::string key;  // bearer token; empty: none
};

// "http://127.0.0.1:8000" (port 80 if none). InvalidArgument for another
// scheme or a path.
absl::StatusOr<Target> ParseUrl(const std::string& url);

}  // namespace fineserve::loadgen

#endif  // BENCH_LOADGEN_TARGET_H_
