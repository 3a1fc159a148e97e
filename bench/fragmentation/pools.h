#ifndef BENCH_FRAGMENTATION_POOLS_H_
#define BENCH_FRAGMENTATION_POOLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/pool/geometry/format.h"
#include "daemon/pool/geometry/pool_geometry.h"

namespace fineserve::bench {

struct Model {
  std::string name;
  slab::KvShape shape;

  slab::Format format() const { return *slab::FormatOf(shape); }
  uint64_t token_bytes() const {
    return format().block_bytes() / shape.block_tokens;
  }
};

// The blocks of one request, as a pool knows them.
struct Held {
  size_t model = 0;
  std::vector<uint64_t> blocks;
};

// A KV pool that several models share, by some scheme.
class Pool {
 public:
  virtual ~Pool() = default;
  // Caches all `tokens` of one request; returns false if they do not fit.
  virtual bool Cache(size_t model, uint32_t tokens, Held* held) = 0;
  virtual void Drop(const Held& held) = 0;
  // Bytes that currently hold no token's block, by cause; zero if the scheme
  // does not report them.
  struct Loss {
    uint64_t tail = 0;     // granules and straddling blocks that no format uses
    uint64_t partial = 0;  // free blocks in slabs that a model holds
  };
  virtual Loss Lost() const { return {}; }
};

// Our slabs: a model leases a slab when it has too few free blocks; if all
// slabs are leased, it takes an empty one from another model.
std::unique_ptr<Pool> MakeSlabPool(const slab::PoolGeometry& geometry,
                                   const std::vector<Model>& models);
// Each model has an equal share of the pool.
std::unique_ptr<Pool> MakePartitionedPool(uint64_t bytes,
                                          const std::vector<Model>& models);
// One block size for all models, that of the largest format (C2).
std::unique_ptr<Pool> MakeFixedBlockPool(uint64_t bytes,
                                         const std::vector<Model>& models);
// Blocks of each format's own size, first fit in one address range (C1).
std::unique_ptr<Pool> MakeFirstFitPool(uint64_t bytes,
                                       const std::vector<Model>& models);
// As in the authors' released code, the pool is split by number of layers; the
// slab size of each part is twice the least common multiple within the part
// (design note 0008).
std::unique_ptr<Pool> MakeSplitByDepthPool(uint64_t bytes,
                                           const std::vector<Model>& models);

}  // namespace fineserve::bench

#endif  // BENCH_FRAGMENTATION_POOLS_H_
