#include "tools/lab/engines/engine_memory.h"

#include <unistd.h>

#include <array>
#include <string>

#include "kernels/driver/rounding.h"
#include "tools/lab/engines/kv_pattern.h"
#include "tools/lab/engines/weak_kv.h"

namespace stock_engine {
namespace {

using fineserve::driver::CUDA_ERROR_OUT_OF_MEMORY;

// A model's tensors: many small ones (norms, biases) and a few large ones.
constexpr size_t kSmallTensors = 16;
constexpr size_t kSmallTensorBytes = 64 << 10;
constexpr size_t kLargeTensors = 4;

// Ranges of weights are numbered from here, so that no weight shares its
// pattern with a layer.
constexpr uint64_t kFirstWeightNumber = 1 << 20;
// The byte that QueueWrites writes; no pattern consists of it.
constexpr unsigned char kQueuedByte = 0xee;

constexpr uint64_t kWeightSeed = 0x77656967687473;

CUdeviceptr Allocate(size_t bytes) {
  CUdeviceptr address = 0;
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &address, bytes);
  return address;
}

std::vector<size_t> TensorSizes(size_t weight_bytes) {
  std::vector<size_t> sizes;
  size_t left = weight_bytes;
  for (size_t i = 0; i < kSmallTensors && left > 2 * kSmallTensorBytes; ++i) {
    sizes.push_back(kSmallTensorBytes);
    left -= kSmallTensorBytes;
  }
  for (size_t parts = kLargeTensors; parts > 0 && left > 0; --parts) {
    sizes.push_back(fineserve::DivideUp(left, parts));
    left -= sizes.back();
  }
  return sizes;
}

}  // namespace

EngineMemory::EngineMemory(const Options& options)
    : options_(options), weight_seed_(kWeightSeed + options.weight_seed) {
  AllocateWeights();
  workspace_ = Allocate(options_.workspace_bytes);
}

EngineMemory::~EngineMemory() {
  FreeKv();
  STOCK_ENGINE_CALL(cuMemFree_v2, workspace_);
  for (const Range& range : weights_) {
    STOCK_ENGINE_CALL(cuMemFree_v2, range.address);
  }
}

void EngineMemory::ResizeWorkspace(size_t bytes) {
  STOCK_ENGINE_CALL(cuMemFree_v2, workspace_);
  workspace_ = Allocate(bytes);
}

void EngineMemory::AllocateWeights() {
  for (size_t bytes : TensorSizes(options_.weight_bytes)) {
    const uint64_t i = weights_.size();
    weights_.push_back({"weights=" + std::to_string(i), kFirstWeightNumber + i,
                        Allocate(bytes), bytes});
  }
}

bool EngineMemory::AllocateKv(std::string* where) {
  const int calls = options_.one_kv_allocation ? 1 : options_.layers;
  const size_t bytes =
      options_.kv_bytes * (options_.one_kv_allocation ? options_.layers : 1);
  for (int i = 0; i < calls; ++i) {
    KvAllocation allocation;
    const CUresult result = stock_engine::AllocateKv(
        options_.allocator, options_.device, bytes, &allocation);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      *where = "layer=" + std::to_string(i) + " bytes=" + std::to_string(bytes);
      FreeKv();
      return false;
    }
    AddKvAllocation(allocation, bytes);
  }
  return true;
}

void EngineMemory::AddKvAllocation(const KvAllocation& allocation,
                                   size_t bytes) {
  kv_allocations_.push_back(allocation);
  for (size_t at = 0; at < bytes; at += options_.kv_bytes) {
    const uint64_t layer = kv_.size();
    kv_.push_back({"layer=" + std::to_string(layer), layer,
                   allocation.address + at, options_.kv_bytes});
  }
}

void EngineMemory::FreeKv() {
  for (const KvAllocation& allocation : kv_allocations_) {
    stock_engine::FreeKv(options_.allocator, allocation);
  }
  kv_allocations_.clear();
  kv_.clear();
}

uint64_t EngineMemory::kv_bytes() const {
  return kv_.size() * options_.kv_bytes;
}

void EngineMemory::WriteWeights() {
  for (const Range& range : weights_) copier_.Write(range, weight_seed_);
}

void EngineMemory::WriteWeights(uint64_t seed) {
  weight_seed_ = kWeightSeed + seed;
  WriteWeights();
}

int EngineMemory::FreezeWeights() const {
  std::vector<fs_weights_range> ranges;
  for (const Range& range : weights_) {
    ranges.push_back({range.address, range.bytes});
  }
  return fs_weights_freeze == nullptr
             ? -1
             : fs_weights_freeze(ranges.data(),
                                 static_cast<uint32_t>(ranges.size()));
}

int EngineMemory::ThawWeights(int timeout_ms) {
  return fs_weights_thaw == nullptr ? -1 : fs_weights_thaw(timeout_ms);
}

void EngineMemory::WriteKv(uint64_t seed) {
  kv_seed_ = seed;
  for (const Range& range : kv_) copier_.Write(range, seed);
}

void EngineMemory::QueueWrites() {
  fineserve::driver::CUstream stream = nullptr;
  STOCK_ENGINE_CALL(cuStreamCreate, &stream,
                    fineserve::driver::CU_STREAM_NON_BLOCKING);
  const auto wait_for_ever = [](void*) {
    for (;;) pause();
  };
  STOCK_ENGINE_CALL(cuLaunchHostFunc, stream, wait_for_ever, nullptr);
  for (const Range& range : kv_) {
    STOCK_ENGINE_CALL(cuMemsetD8Async, range.address, kQueuedByte, range.bytes,
                      stream);
  }
}

Mismatch EngineMemory::VerifyAll() {
  for (const Range& range : kv_) {
    if (Mismatch m = copier_.Verify(range, kv_seed_); m.found) return m;
  }
  for (const Range& range : weights_) {
    if (Mismatch m = copier_.Verify(range, weight_seed_); m.found) return m;
  }
  return {};
}

Mismatch EngineMemory::FindNonZeroKv() {
  for (const Range& range : kv_) {
    if (Mismatch m = copier_.FindNonZero(range); m.found) return m;
  }
  return {};
}

void EngineMemory::ChurnSmallAllocations(int count, uint64_t seed) {
  std::array<CUdeviceptr, 8> alive = {};
  for (int i = 0; i < count; ++i) {
    CUdeviceptr& slot = alive[i % alive.size()];
    if (slot != 0) STOCK_ENGINE_CALL(cuMemFree_v2, slot);
    // Sizes vary as those of activations do: 512 bytes to 256 KiB.
    slot = Allocate(512 + PatternWord(seed, 0, i) % (256 << 10));
  }
  for (CUdeviceptr address : alive) {
    if (address != 0) STOCK_ENGINE_CALL(cuMemFree_v2, address);
  }
}

}  // namespace stock_engine
