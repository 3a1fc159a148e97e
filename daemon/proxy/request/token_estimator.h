#ifndef DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_
#define DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "daemon/proxy/request/request_facts.h"

namespace fineserve::proxy {

// Prompt tokens from bytes of text, by a ratio per model that is corrected by
// the engines' own counts (usage.prompt_tokens). Both sums of the ratio decay,
// so that long prompts weigh more than short ones, whose count is mostly
// template. Confined to the proxy's thread.
class TokenEstimator {
 public:
  // What English text takes in today's tokenizers.
  static constexpr double kFirstBytesPerToken = 4.0;
  // Share of the newest request. Heuristic: the last 50 or so decide.
  static constexpr double kNewest = 0.02;

  // At least 1.
  uint32_t Estimate(const RequestFacts& facts) const;

  // The engine counted `prompt_tokens` for a request of these facts.
  void Learn(const RequestFacts& facts, uint32_t prompt_tokens);

  double BytesPerToken(const std::string& model) const;

 private:
  struct Sums {
    double bytes;
    double tokens;
  };

  absl::flat_hash_map<std::string, Sums> models_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_
