#include "daemon/proxy/replica_choice/prefix_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace fineserve::proxy {
namespace {

uint64_t HashOf(uint64_t before, absl::string_view text) {
  return absl::Hash<std::pair<uint64_t, absl::string_view>>()({before, text});
}

}  // namespace

void PromptPrefix::Add(absl::string_view text) {
  while (!text.empty() && blocks_.size() < kMostBlocks) {
    const size_t left = kBlockBytes - bytes_ % kBlockBytes;
    const absl::string_view piece = text.substr(0, left);
    hash_ = HashOf(hash_, piece);
    bytes_ += piece.size();
    text.remove_prefix(piece.size());
    if (piece.size() == left) blocks_.push_back(hash_);
  }
  bytes_ += text.size();
}

void PromptPrefix::SetAdapter(absl::string_view name) {
  for (uint64_t& block : blocks_) block = HashOf(block, name);
}

void PromptPrefix::SetSession(absl::string_view id) {
  session_ = id.empty() ? 0 : HashOf(1, id);
}

uint32_t PromptPrefix::TokensOf(size_t blocks, uint32_t prompt_tokens) const {
  if (bytes_ == 0) return 0;
  const double share =
      static_cast<double>(blocks * kBlockBytes) / static_cast<double>(bytes_);
  return static_cast<uint32_t>(std::min(share, 1.0) * prompt_tokens);
}

uint32_t PrefixIndex::Known(absl::string_view model, const PromptPrefix& prefix,
                            uint32_t prompt_tokens) {
  uint32_t tokens = 0;
  for (const uint64_t block : prefix.blocks()) {
    const uint32_t* const known = Find(HashOf(block, model));
    if (known == nullptr) break;
    tokens = *known;
  }
  if (prefix.session() != 0) {
    const uint32_t* const known = Find(HashOf(prefix.session(), model));
    if (known != nullptr) tokens = std::max(tokens, *known);
  }
  return std::min(tokens, prompt_tokens);
}

void PrefixIndex::Sent(absl::string_view model, const PromptPrefix& prefix,
                       uint32_t prompt_tokens) {
  const std::vector<uint64_t>& blocks = prefix.blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    Put(HashOf(blocks[i], model), prefix.TokensOf(i + 1, prompt_tokens));
  }
  if (prefix.session() != 0) {
    Put(HashOf(prefix.session(), model), prompt_tokens);
  }
}

void PrefixIndex::Forget() {
  now_.clear();
  before_.clear();
}

const uint32_t* PrefixIndex::Find(uint64_t key) {
  auto found = now_.find(key);
  if (found != now_.end()) return &found->second;
  found = before_.find(key);
  if (found == before_.end()) return nullptr;
  const uint32_t tokens = found->second;
  Put(key, tokens);
  return &now_[key];
}

void PrefixIndex::Put(uint64_t key, uint32_t tokens) {
  if (now_.size() >= kMostKept) {
    before_ = std::move(now_);
    now_ = {};
  }
  now_[key] = tokens;
}

}  // namespace fineserve::proxy
