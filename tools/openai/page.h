#ifndef TOOLS_OPENAI_PAGE_H_
#define TOOLS_OPENAI_PAGE_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "tools/openai/target.h"

namespace fineserve::openai {

struct Page {
  int status = 0;  // of HTTP
  std::string body;
};

// GETs a path of the target's server. Blocks for at most `timeout`. Unavailable
// if no server answers, with the reason.
absl::StatusOr<Page> GetPage(const Target& target, const std::string& path,
                             std::chrono::milliseconds timeout);

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_PAGE_H_
