#ifndef TOOLS_LAB_ENGINES_RANKS_RANK_MEMORY_H_
#define TOOLS_LAB_ENGINES_RANKS_RANK_MEMORY_H_

#include <cstdint>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/ranks/group_options.h"
#include "tools/lab/engines/ranks/rank_orders.h"

namespace stock_engine {

// A view of one GPU's pool, and the operations on its slabs: one plane, filled
// and read back by work in a stream. Any failure prints a line and exits. Not
// thread-safe.
class RankMemory {
 public:
  // Registers and activates the view; `flags` are fs_kv_format's.
  RankMemory(int device, uint32_t floor_blocks, uint32_t flags);
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  const fs_kv_geometry& geometry() const { return geometry_; }

  void Fill(uint32_t slab, uint32_t word);
  Answer Check(uint32_t slab, uint32_t word);
  void Sync();

 private:
  CUdeviceptr At(uint32_t slab) const {
    return tensor_ + slab * geometry_.plane_bytes;
  }

  fs_kv_geometry geometry_ = {};
  CUdeviceptr tensor_ = 0;
  CUstream stream_ = nullptr;
  uint32_t* read_ = nullptr;  // pinned: one slab
};

// Runs as a rank: says hello on stdout and obeys orders from stdin until its
// end.
int RunRank(const GroupOptions& options);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_RANK_MEMORY_H_
