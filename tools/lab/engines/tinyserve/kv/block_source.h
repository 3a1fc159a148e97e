#ifndef TOOLS_LAB_ENGINES_TINYSERVE_KV_BLOCK_SOURCE_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_KV_BLOCK_SOURCE_H_

// Source of an engine's KV blocks: the engine's tensors (OwnBlocks), or leases
// of FineServe's pool (leased_blocks.h).

#include <cstdint>
#include <vector>

namespace tinyserve {

using BlockId = uint32_t;

// Confined to the engine's thread.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  // True if the engine's memory has left the GPU; BeginStep brings it back.
  virtual bool IsAway() const { return false; }

  // Call around each step: BeginStep before its blocks are allocated, EndStep
  // when the device has executed it.
  virtual void BeginStep() = 0;
  virtual void EndStep() = 0;

  // Appends `count` blocks to `to`. If too few are free, returns false and
  // changes nothing.
  virtual bool Allocate(uint32_t count, std::vector<BlockId>* to) = 0;
  virtual void Free(const std::vector<BlockId>& blocks) = 0;

  // Announces how many blocks the next steps could take at most.
  virtual void Expect(uint64_t blocks) = 0;

  virtual uint64_t used_blocks() const = 0;
  // Used or free now.
  virtual uint64_t held_blocks() const = 0;
};

// The blocks of tensors that only this engine uses: all but block 0, the null
// block. The block freed last is allocated first.
class OwnBlocks : public BlockSource {
 public:
  explicit OwnBlocks(uint32_t tensor_blocks);

  void BeginStep() override {}
  void EndStep() override {}
  bool Allocate(uint32_t count, std::vector<BlockId>* to) override;
  void Free(const std::vector<BlockId>& blocks) override;
  void Expect(uint64_t) override {}
  uint64_t used_blocks() const override { return held_ - free_.size(); }
  uint64_t held_blocks() const override { return held_; }

 private:
  uint64_t held_;
  std::vector<BlockId> free_;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_KV_BLOCK_SOURCE_H_
