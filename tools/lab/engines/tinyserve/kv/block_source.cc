#include "tools/lab/engines/tinyserve/kv/block_source.h"

namespace tinyserve {

OwnBlocks::OwnBlocks(uint32_t tensor_blocks)
    : held_(tensor_blocks > 0 ? tensor_blocks - 1 : 0) {
  free_.reserve(held_);
  for (BlockId block = tensor_blocks; block > 1; --block) {
    free_.push_back(block - 1);
  }
}

bool OwnBlocks::Allocate(uint32_t count, std::vector<BlockId>* to) {
  if (count > free_.size()) return false;
  to->insert(to->end(), free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - count);
  return true;
}

void OwnBlocks::Free(const std::vector<BlockId>& blocks) {
  free_.insert(free_.end(), blocks.begin(), blocks.end());
}

}  // namespace tinyserve
