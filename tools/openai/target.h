#ifndef TOOLS_OPENAI_TARGET_H_
#define TOOLS_OPENAI_TARGET_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace fineserve::openai {

// Where requests go: http://host:port and the path of completions or chats.
struct Target {
  std::string host;
  std::string port;
  std::string path;
  std::string key;  // bearer token; empty: none
};

// Parses "http://127.0.0.1:8000" (the default port is 80). Returns
// InvalidArgument for another scheme or a path.
absl::StatusOr<Target> ParseUrl(const std::string& url);

struct Page {
  int status = 0;  // of HTTP
  std::string body;
};

// GETs a path of the target's server. Blocks for at most `timeout`. Returns
// Unavailable, with the reason, if no server answers.
absl::StatusOr<Page> GetPage(const Target& target, const std::string& path,
                             std::chrono::milliseconds timeout);

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_TARGET_H_
