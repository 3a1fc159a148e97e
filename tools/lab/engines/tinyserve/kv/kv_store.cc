#include "tools/lab/engines/tinyserve/kv/kv_store.h"

#include <algorithm>
#include <cstring>

#include "tools/lab/engines/weak_kv.h"

namespace tinyserve {
namespace {

using namespace fineserve::driver;  // NOLINT: this file calls CUDA
using stock_engine::ErrorName;

constexpr size_t kStagingBytes = 16 << 20;  // heuristic: a large step's KV
constexpr unsigned char kRubbish = 0xff;    // a NaN in every floating format
constexpr uint64_t kNeverRead = 0xcdcdcdcdcdcdcdcd;

}  // namespace

KvStore::KvStore(const KvFormat& format, uint32_t blocks)
    : format_(format),
      blocks_(blocks),
      staging_bytes_(std::max(kStagingBytes, format.page_bytes)) {
  STOCK_ENGINE_CALL(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  for (Staging* staging : {&writes_, &reads_}) {
    void* host = nullptr;
    STOCK_ENGINE_CALL(cuMemHostAlloc, &host, staging_bytes_, 0);
    staging->host = static_cast<char*>(host);
  }
}

KvStore::~KvStore() {
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  for (const CUdeviceptr tensor : tensors_) {
    STOCK_ENGINE_CALL(cuMemFree_v2, tensor);
  }
  STOCK_ENGINE_CALL(cuMemFreeHost, writes_.host);
  STOCK_ENGINE_CALL(cuMemFreeHost, reads_.host);
  STOCK_ENGINE_CALL(cuStreamDestroy_v2, stream_);
}

bool KvStore::Allocate(bool is_kv, std::string* why) {
  if (is_kv) fs_kv_begin();
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && tensors_.size() < format_.planes) {
    CUdeviceptr tensor = 0;
    result = cuMemAlloc_v2(&tensor, blocks_ * format_.page_bytes);
    if (result == CUDA_SUCCESS) tensors_.push_back(tensor);
  }
  if (is_kv) fs_kv_end();
  if (result == CUDA_SUCCESS) return true;
  *why = std::string("cuMemAlloc_v2 ") + ErrorName(result);
  return false;
}

void KvStore::WarmUp() {
  for (const CUdeviceptr tensor : tensors_) {
    STOCK_ENGINE_CALL(cuMemsetD8Async, tensor, kRubbish,
                      blocks_ * format_.page_bytes, stream_);
  }
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

// Returns room for a copy. If there is none, waits for all pending copies.
char* KvStore::Take(Staging* staging, size_t bytes) {
  if (staging->used + bytes > staging_bytes_) Finish();
  char* room = staging->host + staging->used;
  staging->used += bytes;
  return room;
}

CUdeviceptr KvStore::SlotAt(BlockId block, uint32_t plane,
                            uint32_t slot) const {
  return tensors_[plane] + block * format_.page_bytes +
         slot * format_.slot_bytes();
}

void KvStore::Write(const std::vector<BlockId>& blocks, uint32_t first,
                    const State* states, uint32_t count) {
  const uint32_t end = first + count;
  for (uint32_t at = first; at < end;) {
    const uint32_t slot = at % format_.block_tokens;
    const uint32_t slots = std::min(format_.block_tokens - slot, end - at);
    const BlockId block = blocks[at / format_.block_tokens];
    for (uint32_t plane = 0; plane < format_.planes; ++plane) {
      const size_t bytes = slots * format_.slot_bytes();
      char* host = Take(&writes_, bytes);
      for (uint32_t i = 0; i < slots; ++i) {
        char* words = host + i * format_.slot_bytes();
        FillSlot(format_.shape(), states[at - first + i], plane,
                 reinterpret_cast<uint64_t*>(words));
      }
      STOCK_ENGINE_CALL(cuMemcpyHtoDAsync_v2, SlotAt(block, plane, slot), host,
                        bytes, stream_);
    }
    at += slots;
  }
}

void KvStore::Read(BlockId block, uint32_t slots, State* sum) {
  for (uint32_t plane = 0; plane < format_.planes; ++plane) {
    const size_t bytes = slots * format_.slot_bytes();
    char* host = Take(&reads_, bytes);
    // Bytes of an earlier read must not pass for bytes of this one.
    for (uint32_t slot = 0; slot < slots; ++slot) {
      memcpy(host + slot * format_.slot_bytes(), &kNeverRead,
             sizeof(kNeverRead));
    }
    STOCK_ENGINE_CALL(cuMemcpyDtoHAsync_v2, host, SlotAt(block, plane, 0),
                      bytes, stream_);
    pending_.push_back({host, plane, slots, sum});
  }
}

void KvStore::Add(const PendingRead& read) const {
  for (uint32_t slot = 0; slot < read.slots; ++slot) {
    const char* words = read.host + slot * format_.slot_bytes();
    *read.sum += SlotDigest(format_.shape(), read.plane,
                            reinterpret_cast<const uint64_t*>(words));
  }
}

void KvStore::Finish() {
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  for (const PendingRead& read : pending_) Add(read);
  pending_.clear();
  writes_.used = reads_.used = 0;
}

void KvStore::Corrupt(BlockId block, uint32_t slot) {
  char byte = 0;
  const CUdeviceptr at = SlotAt(block, format_.planes - 1, slot);
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  STOCK_ENGINE_CALL(cuMemcpyDtoH_v2, &byte, at, 1);
  byte ^= 1;
  STOCK_ENGINE_CALL(cuMemcpyHtoD_v2, at, &byte, 1);
}

}  // namespace tinyserve
