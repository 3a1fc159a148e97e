#ifndef TOOLS_FSCTL_PROFILE_ENGINE_FACTS_H_
#define TOOLS_FSCTL_PROFILE_ENGINE_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {

struct ServedModel {
  std::string name;
  uint32_t most_tokens = 0;  // of prompt and answer; 0: not known
};

// Reads the answer to GET /v1/models, and chooses `wanted` from it or, if that
// is empty, the only model. If the server lacks that page, assumes that it
// serves `wanted`. Errors are one line with the fix.
absl::StatusOr<ServedModel> ChooseModel(const openai::Page& page,
                                        const std::string& wanted);

// Returns the requests that the engine runs or holds back, by vLLM's names in
// Prometheus text; nullopt if the text lacks them.
absl::optional<double> RequestsInside(absl::string_view metrics);

// Number of tokens in a prompt as a function of its words.
struct WordRate {
  double tokens_a_word = 1;
  double fixed_tokens = 0;  // of a chat's template, or at the beginning

  // Returns the number of words whose prompt comes nearest to `tokens`; at
  // least 1.
  uint32_t WordsFor(uint32_t tokens) const;
};

// Computes the rate from two prompts of different lengths.
struct CountedPrompt {
  uint32_t words;
  uint32_t tokens;
};
WordRate RateOf(CountedPrompt a, CountedPrompt b);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_ENGINE_FACTS_H_
