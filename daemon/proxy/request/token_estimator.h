#ifndef DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_
#define DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_

#include <cstdint>
#include <string>
#include <unordered_map>

#include "daemon/proxy/request/request_facts.h"

namespace fineserve::proxy {

// Estimates prompt tokens from bytes of text by a ratio per model, which it
// corrects by the engines' counts (usage.prompt_tokens). The ratio is that of
// two decaying sums, so that long prompts weigh more, up to a bound, than short
// ones, whose tokens are mostly the template's. It learns nothing from requests
// with tokens that it cannot see. Confined to the proxy's thread.
class TokenEstimator {
 public:
  // Typical of English text and today's tokenizers.
  static constexpr double kFirstBytesPerToken = 4.0;
  // Weight of the newest request. Heuristic: about the last 50 decide.
  static constexpr double kNewest = 0.02;

  // At least 1.
  uint32_t Estimate(const RequestFacts& facts) const;

  // Learns that the engine counted `prompt_tokens` for a request of these
  // facts.
  void Learn(const RequestFacts& facts, uint32_t prompt_tokens);

  double BytesPerToken(const std::string& model) const;

 private:
  struct Sums {
    double bytes;
    double tokens;
  };

  std::unordered_map<std::string, Sums> models_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_TOKEN_ESTIMATOR_H_
