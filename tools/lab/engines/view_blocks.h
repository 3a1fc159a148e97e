#ifndef TOOLS_LAB_ENGINES_VIEW_BLOCKS_H_
#define TOOLS_LAB_ENGINES_VIEW_BLOCKS_H_

// The KV blocks of an engine with a view of the pool (shim/fineserve_kv.h): its
// tensors, and what it wrote into which block. Every check uses copies, so it
// works on a real device too.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shim/fineserve_kv.h"
#include "tools/lab/engines/device_memory.h"

namespace stock_engine {

// A wrong value in a page.
struct Wrong {
  bool found = false;
  uint32_t block = 0;
  uint32_t slab = 0;  // view index
  uint32_t plane = 0;
  uint64_t offset = 0;  // in the page
  uint64_t got = 0;

  // "block=70 slab=2 plane=1 offset=64 got=0x…".
  std::string Text() const;
};

// Not thread-safe. Needs a current context, which must outlive it.
class ViewBlocks {
 public:
  ViewBlocks(const fs_kv_format& format, const fs_kv_geometry& geometry,
             uint64_t seed);
  ~ViewBlocks();
  ViewBlocks(const ViewBlocks&) = delete;
  ViewBlocks& operator=(const ViewBlocks&) = delete;

  // Allocates every tensor in a KV scope. If one cannot be allocated, returns
  // false and names the result.
  bool AllocateTensors(std::string* why);
  // Fills all tensors with rubbish, as an engine's warm-up does.
  void WarmUp();
  void FreeTensors();

  // Takes blocks from fs_kv_allocate and returns its result.
  int Allocate(uint32_t count);
  // Returns blocks to fs_kv_free, the newest first, without checking them.
  int Free(uint32_t count);
  // Frees the block at `place` of held().
  int FreeAt(size_t place);
  // Marks the block at `place` to be written again, as when an engine appends
  // to it.
  void WriteAgain(size_t place);

  // Checks allocated blocks that have not been written since: each must hold
  // only zeros. With `or_own`, the bytes that this engine wrote there last are
  // valid too, because the lease may still be the same.
  Wrong FindForeign(bool or_own);
  // Fills every held block with bytes that are NaN in every floating format.
  void FillWithNan();
  // Queues writes of a distinct pattern into each unwritten block, in every
  // plane. Returns the number of blocks. The copies have been made when `done`
  // has passed.
  uint32_t Write(CUevent done);
  // From now on Write fills a block with rubbish before it writes the pattern.
  void FillFirst() { fills_first_ = true; }
  // Check that every written block, or the one at `place`, holds what was
  // written.
  Wrong Verify();
  Wrong VerifyAt(size_t place);

  // Access a block by its number, whether it is leased or not.
  enum class Content { kZero, kOwn, kOther };
  Content Peek(uint32_t block);
  void Poke(uint32_t block);

  const std::vector<uint32_t>& held() const { return held_; }
  CUstream stream() const { return stream_; }

 private:
  CUdeviceptr PageOf(uint32_t block, uint32_t plane) const;
  void QueueBlock(uint32_t block, uint64_t tag, char* staging);
  // Compares the block with the pattern of `tag`, or with zeros if it is 0.
  Wrong Compare(uint32_t block, uint64_t tag);
  void ReadBlock(uint32_t block);
  size_t block_bytes() const { return format_.planes * format_.page_bytes; }

  const fs_kv_format format_;
  const fs_kv_geometry geometry_;
  bool fills_first_ = false;
  uint64_t next_tag_;
  CUstream stream_ = nullptr;
  char* read_ = nullptr;     // pinned: one block
  char* staging_ = nullptr;  // pinned: kStagingBlocks of them, a ring
  uint32_t staging_next_ = 0;
  std::vector<CUdeviceptr> tensors_;
  std::vector<uint32_t> held_;
  std::vector<uint32_t> unwritten_;
  std::map<uint32_t, uint64_t> tags_;  // by block: what was written last

  static constexpr uint32_t kStagingBlocks = 64;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_VIEW_BLOCKS_H_
