#ifndef DAEMON_PROXY_CHOICE_PREFIX_INDEX_H_
#define DAEMON_PROXY_CHOICE_PREFIX_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// A prompt's beginning, as hashes of its text up to the end of each block of
// kBlockBytes. Prompts that share a beginning share the first hashes.
class PromptPrefix {
 public:
  static constexpr size_t kBlockBytes = 1024;  // some 256 tokens
  // Longer ones are the same as far as this reaches: half a megabyte.
  static constexpr size_t kMostBlocks = 512;

  // More of the prompt's text, in its order.
  void Add(absl::string_view text);
  // An adapter's KV is another than that of its model, for the text so far.
  void SetAdapter(absl::string_view name);
  // Requests of one session continue each other. Empty: of none.
  void SetSession(absl::string_view id);

  const std::vector<uint64_t>& blocks() const { return blocks_; }
  uint64_t session() const { return session_; }  // 0: of none
  // Tokens of the first `blocks` blocks, of a prompt of so many.
  uint32_t TokensOf(size_t blocks, uint32_t prompt_tokens) const;

 private:
  std::vector<uint64_t> blocks_;
  uint64_t hash_ = 0;
  uint64_t bytes_ = 0;
  uint64_t session_ = 0;
};

// The beginnings of prompts that one GPU's engines were sent lately, and whose
// KV their prefix caches probably hold. It remembers the newest kMostKept
// blocks at least and twice as many at most, of all its models. Pure.
class PrefixIndex {
 public:
  // Heuristic: half a million tokens, the KV of an 8B model on one GPU.
  static constexpr size_t kMostKept = 2048;

  // How many of the prompt's tokens need no prefill there.
  uint32_t Known(absl::string_view model, const PromptPrefix& prefix,
                 uint32_t prompt_tokens);
  void Sent(absl::string_view model, const PromptPrefix& prefix,
            uint32_t prompt_tokens);
  // Its engines have lost their caches.
  void Forget();

 private:
  // Tokens up to the end of a block, by its hash.
  using Generation = std::unordered_map<uint64_t, uint32_t>;

  // Null if it is not known; otherwise it counts as new.
  const uint32_t* Find(uint64_t key);
  void Put(uint64_t key, uint32_t tokens);

  Generation now_, before_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_CHOICE_PREFIX_INDEX_H_
