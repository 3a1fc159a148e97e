#ifndef DAEMON_PROXY_RELAY_RESPONSE_HOMES_H_
#define DAEMON_PROXY_RELAY_RESPONSE_HOMES_H_

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Remembers which engine was found to have a stored response, for the most
// recently found ids. It is only a hint: the engine may have lost the response
// since. Confined to the proxy's thread.
class ResponseHomes {
 public:
  // Some 1 MiB.
  static constexpr size_t kMost = 4096;
  // Longer ids are not kept; vLLM's have 37 characters.
  static constexpr size_t kMostIdBytes = 128;

  void Found(absl::string_view id, const std::string& engine);

  // Empty if it is not known.
  std::string EngineOf(absl::string_view id) const;

  size_t size() const { return engines_.size(); }

 private:
  std::unordered_map<std::string, std::string> engines_;  // by id
  std::deque<std::string> ids_;                           // oldest first
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_RESPONSE_HOMES_H_
