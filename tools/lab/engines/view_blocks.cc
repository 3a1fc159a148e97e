#include "tools/lab/engines/view_blocks.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tools/lab/engines/kv_pattern.h"
#include "tools/lab/engines/weak_kv.h"

namespace stock_engine {
namespace {

using fineserve::driver::CUDA_SUCCESS;

constexpr unsigned char kRubbish = 0xff;  // a NaN in every floating format

}  // namespace

std::string Wrong::Text() const {
  char text[160];
  snprintf(text, sizeof(text),
           "block=%u slab=%u plane=%u offset=%" PRIu64 " got=0x%" PRIx64, block,
           slab, plane, offset, got);
  return text;
}

ViewBlocks::ViewBlocks(const fs_kv_format& format,
                       const fs_kv_geometry& geometry, uint64_t seed)
    : format_(format), geometry_(geometry), next_tag_(seed << 32 | 1) {
  STOCK_ENGINE_CALL(cuStreamCreate, &stream_, 0);
  STOCK_ENGINE_CALL(cuMemAllocHost_v2, reinterpret_cast<void**>(&read_),
                    block_bytes());
  STOCK_ENGINE_CALL(cuMemAllocHost_v2, reinterpret_cast<void**>(&staging_),
                    kStagingBlocks * block_bytes());
}

ViewBlocks::~ViewBlocks() {
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  FreeTensors();
  STOCK_ENGINE_CALL(cuMemFreeHost, staging_);
  STOCK_ENGINE_CALL(cuMemFreeHost, read_);
  STOCK_ENGINE_CALL(cuStreamDestroy_v2, stream_);
}

bool ViewBlocks::AllocateTensors(std::string* why) {
  const size_t bytes =
      format_.planes_per_allocation * geometry_.blocks * format_.page_bytes;
  fs_kv_begin();
  for (uint32_t p = 0; p < format_.planes; p += format_.planes_per_allocation) {
    CUdeviceptr tensor = 0;
    const CUresult result = fineserve::driver::cuMemAlloc_v2(&tensor, bytes);
    if (result != CUDA_SUCCESS) {
      *why = std::string("cuMemAlloc_v2 ") + ErrorName(result);
      break;
    }
    tensors_.push_back(tensor);
  }
  fs_kv_end();
  return tensors_.size() == format_.planes / format_.planes_per_allocation;
}

void ViewBlocks::WarmUp() {
  const size_t bytes =
      format_.planes_per_allocation * geometry_.blocks * format_.page_bytes;
  for (CUdeviceptr tensor : tensors_) {
    STOCK_ENGINE_CALL(cuMemsetD8Async, tensor, kRubbish, bytes, stream_);
  }
}

void ViewBlocks::FillWithNan() {
  for (const uint32_t block : held_) {
    for (uint32_t plane = 0; plane < format_.planes; ++plane) {
      STOCK_ENGINE_CALL(cuMemsetD8Async, PageOf(block, plane), kRubbish,
                        format_.page_bytes, stream_);
    }
  }
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

void ViewBlocks::FreeTensors() {
  for (CUdeviceptr tensor : tensors_) STOCK_ENGINE_CALL(cuMemFree_v2, tensor);
  tensors_.clear();
}

CUdeviceptr ViewBlocks::PageOf(uint32_t block, uint32_t plane) const {
  const uint32_t each = format_.planes_per_allocation;
  const uint64_t page = plane % each * geometry_.blocks + block;
  return tensors_[plane / each] + page * format_.page_bytes;
}

int ViewBlocks::Allocate(uint32_t count) {
  std::vector<uint32_t> ids(count);
  const int result = fs_kv_allocate(count, ids.data());
  if (result != FS_OK) return result;
  held_.insert(held_.end(), ids.begin(), ids.end());
  unwritten_.insert(unwritten_.end(), ids.begin(), ids.end());
  return FS_OK;
}

int ViewBlocks::FreeAt(size_t place) {
  const uint32_t block = held_[place];
  held_[place] = held_.back();
  held_.pop_back();
  unwritten_.erase(std::remove(unwritten_.begin(), unwritten_.end(), block),
                   unwritten_.end());
  return fs_kv_free(1, &block);
}

void ViewBlocks::WriteAgain(size_t place) {
  const uint32_t block = held_[place];
  if (std::find(unwritten_.begin(), unwritten_.end(), block) ==
      unwritten_.end()) {
    unwritten_.push_back(block);
  }
}

int ViewBlocks::Free(uint32_t count) {
  for (; count > 0 && !held_.empty(); --count) {
    if (const int error = FreeAt(held_.size() - 1)) return error;
  }
  return FS_OK;
}

Wrong ViewBlocks::FindForeign(bool or_own) {
  for (uint32_t block : unwritten_) {
    Wrong wrong = Compare(block, 0);
    const auto own = tags_.find(block);
    if (wrong.found && or_own && own != tags_.end() &&
        !Compare(block, own->second).found) {
      continue;
    }
    if (wrong.found) return wrong;
  }
  return {};
}

uint32_t ViewBlocks::Write(CUevent done) {
  const auto count = static_cast<uint32_t>(unwritten_.size());
  for (uint32_t block : unwritten_) {
    // A staging buffer is used again only after the copy out of it has
    // finished.
    if (staging_next_ == kStagingBlocks) {
      STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
      staging_next_ = 0;
    }
    tags_[block] = next_tag_;
    QueueBlock(block, next_tag_++, staging_ + staging_next_++ * block_bytes());
  }
  unwritten_.clear();
  STOCK_ENGINE_CALL(cuEventRecord, done, stream_);
  return count;
}

void ViewBlocks::QueueBlock(uint32_t block, uint64_t tag, char* staging) {
  for (uint32_t plane = 0; plane < format_.planes; ++plane) {
    char* page = staging + plane * format_.page_bytes;
    FillPattern(tag, plane + 1, 0, page, format_.page_bytes);
    if (fills_first_) {
      STOCK_ENGINE_CALL(cuMemsetD8Async, PageOf(block, plane), kRubbish,
                        format_.page_bytes, stream_);
    }
    STOCK_ENGINE_CALL(cuMemcpyHtoDAsync_v2, PageOf(block, plane), page,
                      format_.page_bytes, stream_);
  }
}

void ViewBlocks::ReadBlock(uint32_t block) {
  for (uint32_t plane = 0; plane < format_.planes; ++plane) {
    STOCK_ENGINE_CALL(cuMemcpyDtoHAsync_v2, read_ + plane * format_.page_bytes,
                      PageOf(block, plane), format_.page_bytes, stream_);
  }
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

Wrong ViewBlocks::Compare(uint32_t block, uint64_t tag) {
  ReadBlock(block);
  for (uint32_t plane = 0; plane < format_.planes; ++plane) {
    const char* page = read_ + plane * format_.page_bytes;
    for (uint64_t at = 0; at < format_.page_bytes; at += 8) {
      const uint64_t wanted =
          tag == 0 ? 0 : PatternWord(tag, plane + 1, at / 8);
      uint64_t got;
      memcpy(&got, page + at, sizeof(got));
      if (got == wanted) continue;
      const auto slab = static_cast<uint32_t>(block * format_.page_bytes /
                                              geometry_.plane_bytes);
      return {true, block, slab, plane, at, got};
    }
  }
  return {};
}

Wrong ViewBlocks::VerifyAt(size_t place) {
  const uint32_t block = held_[place];
  if (std::find(unwritten_.begin(), unwritten_.end(), block) !=
      unwritten_.end()) {
    return {};
  }
  return Compare(block, tags_[block]);
}

Wrong ViewBlocks::Verify() {
  for (size_t place = 0; place < held_.size(); ++place) {
    if (Wrong wrong = VerifyAt(place); wrong.found) return wrong;
  }
  return {};
}

ViewBlocks::Content ViewBlocks::Peek(uint32_t block) {
  if (!Compare(block, 0).found) return Content::kZero;
  const auto own = tags_.find(block);
  return own != tags_.end() && !Compare(block, own->second).found
             ? Content::kOwn
             : Content::kOther;
}

void ViewBlocks::Poke(uint32_t block) {
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  tags_[block] = next_tag_;
  QueueBlock(block, next_tag_++, staging_);
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

}  // namespace stock_engine
