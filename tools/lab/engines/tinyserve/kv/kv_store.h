#ifndef TOOLS_LAB_ENGINES_TINYSERVE_KV_KV_STORE_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_KV_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/tinyserve/kv/block_source.h"
#include "tools/lab/engines/tinyserve/model/answer.h"

namespace tinyserve {

// Layout of KV. Each plane holds page_bytes / block_tokens bytes of a token, a
// multiple of 8; a token has `planes` times as many.
struct KvFormat {
  uint32_t planes = 1;
  size_t page_bytes = 64 << 10;  // of one block in one plane
  uint32_t block_tokens = 16;

  size_t slot_bytes() const { return page_bytes / block_tokens; }
  SlotShape shape() const { return {planes, slot_bytes() / sizeof(uint64_t)}; }
};

// KV in device memory: one tensor per plane, written and read by asynchronous
// copies on one stream.
//
// Confined to the engine's thread, with a current context that outlives it.
// Everything that Write and Read queue is done when Finish returns.
class KvStore {
 public:
  KvStore(const KvFormat& format, uint32_t blocks);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // Allocates the tensors, within a KV scope of the shim if `is_kv`. If memory
  // runs out, returns false and names the driver's result.
  bool Allocate(bool is_kv, std::string* why);
  // Fills all tensors with rubbish, as an engine's warm-up does.
  void WarmUp();

  // Writes the slots of `count` positions starting at `first`, in the given
  // `blocks`; states[i] belongs to position first + i.
  void Write(const std::vector<BlockId>& blocks, uint32_t first,
             const State* states, uint32_t count);

  // Adds the digests of the block's first `slots` slots to *sum.
  void Read(BlockId block, uint32_t slots, State* sum);

  void Finish();

  // Changes one bit of a slot, as a stray write of another engine would.
  void Corrupt(BlockId block, uint32_t slot);

 private:
  struct Staging {
    char* host = nullptr;  // pinned
    size_t used = 0;
  };
  struct PendingRead {
    const char* host;
    uint32_t plane;
    uint32_t slots;
    State* sum;
  };

  char* Take(Staging* staging, size_t bytes);
  stock_engine::CUdeviceptr SlotAt(BlockId block, uint32_t plane,
                                   uint32_t slot) const;
  void Add(const PendingRead& read) const;

  const KvFormat format_;
  const uint32_t blocks_;
  const size_t staging_bytes_;
  stock_engine::CUstream stream_ = nullptr;
  Staging writes_;
  Staging reads_;
  std::vector<PendingRead> pending_;
  std::vector<stock_engine::CUdeviceptr> tensors_;  // by plane
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_KV_KV_STORE_H_
