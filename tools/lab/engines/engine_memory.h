#ifndef TOOLS_LAB_ENGINES_ENGINE_MEMORY_H_
#define TOOLS_LAB_ENGINES_ENGINE_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/engine_options.h"
#include "tools/lab/engines/kv_memory.h"

namespace stock_engine {

// An engine's memory on its device: weights, KV, workspace. Needs a current
// context, which must outlive this object. The destructor frees everything. Not
// thread-safe.
class EngineMemory {
 public:
  // Allocates weights and workspace, in the order and sizes of an engine that
  // loads a model; AllocateKv adds the KV later. Exits on a CUDA error.
  explicit EngineMemory(const Options& options);
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  // Allocates the KV of every layer. On CUDA_ERROR_OUT_OF_MEMORY frees the
  // layers allocated so far, writes to `where` which layer failed, and returns
  // false. Exits on any other error.
  bool AllocateKv(std::string* where);
  void FreeKv();
  bool has_kv() const { return !kv_.empty(); }
  uint64_t kv_bytes() const;
  const Range& first_kv() const { return kv_.front(); }
  CUdeviceptr workspace() const { return workspace_; }
  void ResizeWorkspace(size_t bytes);

  void WriteWeights();
  // From now on the weights hold the pattern of `seed`. They may be written
  // only if writing is allowed (ThawWeights).
  void WriteWeights(uint64_t seed);
  // FreezeWeights tells FineServe, if it is present, that the weights hold only
  // parameters. ThawWeights tells it that they are about to be written. Both
  // return FineServe's result (shim/fineserve_kv.h), or -1 without FineServe.
  int FreezeWeights() const;
  static int ThawWeights(int timeout_ms);
  const std::vector<Range>& weights() const { return weights_; }
  void WriteKv(uint64_t seed);
  // Queues writes to all KV on the device behind a host function that never
  // returns, so that the writes are pending when the process is killed.
  void QueueWrites();
  // Returns the first mismatch in the weights (which were written once) or the
  // KV.
  Mismatch VerifyAll();
  Mismatch FindNonZeroKv();
  uint64_t kv_seed() const { return kv_seed_; }

  // Makes and frees small allocations, keeping a few alive at any time.
  static void ChurnSmallAllocations(int count, uint64_t seed);

 private:
  void AllocateWeights();
  void AddKvAllocation(const KvAllocation& allocation, size_t bytes);

  const Options options_;
  Copier copier_;
  std::vector<Range> weights_;
  uint64_t weight_seed_;
  CUdeviceptr workspace_ = 0;
  std::vector<KvAllocation> kv_allocations_;
  std::vector<Range> kv_;  // one per layer
  uint64_t kv_seed_ = 0;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_ENGINE_MEMORY_H_
