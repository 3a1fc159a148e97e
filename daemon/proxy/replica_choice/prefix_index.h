#ifndef DAEMON_PROXY_REPLICA_CHOICE_PREFIX_INDEX_H_
#define DAEMON_PROXY_REPLICA_CHOICE_PREFIX_INDEX_H_

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
  // Only this much of a longer prompt is compared: half a megabyte.
  static constexpr size_t kMostBlocks = 512;

  // Adds the next part of the prompt's text, in order.
  void Add(absl::string_view text);
  // Separates an adapter's prompts from its model's, since the KV for the same
  // text differs.
  void SetAdapter(absl::string_view name);
  // Sets the session, whose requests continue each other. Empty: no session.
  void SetSession(absl::string_view id);

  const std::vector<uint64_t>& blocks() const { return blocks_; }
  uint64_t session() const { return session_; }  // 0: of none
  // Returns the tokens in the first `blocks` blocks of a prompt of
  // `prompt_tokens`.
  uint32_t TokensOf(size_t blocks, uint32_t prompt_tokens) const;

 private:
  std::vector<uint64_t> blocks_;
  uint64_t hash_ = 0;
  uint64_t bytes_ = 0;
  uint64_t session_ = 0;
};

// The beginnings of prompts that were recently sent to one GPU's engines, whose
// prefix caches probably hold the KV. Remembers at least the newest kMostKept
// blocks, and at most twice as many, over all models. Pure.
class PrefixIndex {
 public:
  // Heuristic: half a million tokens, the KV of an 8B model on one GPU.
  static constexpr size_t kMostKept = 2048;

  // Returns how many of the prompt's tokens need no prefill on this GPU.
  uint32_t Known(absl::string_view model, const PromptPrefix& prefix,
                 uint32_t prompt_tokens);
  void Sent(absl::string_view model, const PromptPrefix& prefix,
            uint32_t prompt_tokens);
  // Forgets everything, because the GPU's engines have lost their caches.
  void Forget();

 private:
  // Number of tokens up to the end of a block, by the block's hash.
  using Generation = std::unordered_map<uint64_t, uint32_t>;

  // Returns null if the block is not known; otherwise the block counts as new.
  const uint32_t* Find(uint64_t key);
  void Put(uint64_t key, uint32_t tokens);

  Generation now_, before_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REPLICA_CHOICE_PREFIX_INDEX_H_
