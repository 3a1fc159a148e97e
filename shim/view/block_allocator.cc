#include "shim/view/block_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "daemon/contract/abi/block_range.h"
#include "kernels/driver/rounding.h"

namespace fineserve::shim {
namespace {

constexpr uint32_t kWordBits = 64;

uint32_t Words(uint64_t blocks) {
  return static_cast<uint32_t>(DivideUp(blocks, kWordBits));
}

// 4 PiB: see ViewOf.
constexpr uint64_t kMostViewBytes = uint64_t{1} << 52;

// The bits of the buckets whose slabs have a free block.
constexpr uint64_t kWithFree = (uint64_t{1} << 33) - 2;

uint32_t BucketOf(uint32_t free) {
  return static_cast<uint32_t>(std::bit_width(free));
}

}  // namespace

BlockAllocator::~BlockAllocator() {
  if (slabs_ != nullptr) munmap(slabs_, memory_bytes_);
}

bool BlockAllocator::Create(uint32_t slab_count, uint64_t plane_bytes,
                            uint64_t page_bytes) {
  if (slabs_ != nullptr || slab_count == 0 || page_bytes == 0 ||
      plane_bytes < page_bytes) {
    return false;
  }
  if (plane_bytes > kMostViewBytes / (uint64_t{slab_count} + 1)) return false;
  const uint64_t ids =
      abi::BlocksOfView(slab_count, plane_bytes, page_bytes).end;
  if (ids > UINT32_MAX) return false;
  const uint32_t words = Words(plane_bytes / page_bytes);
  const size_t slab_bytes = (size_t{slab_count} + 1) * sizeof(Slab);
  memory_bytes_ =
      slab_bytes + (size_t{slab_count} * words + Words(ids)) * sizeof(uint64_t);
  void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  slabs_ = static_cast<Slab*>(memory);
  slab_count_ = slab_count;
  id_count_ = ids;
  views_per_block_ =
      static_cast<double>(page_bytes) / static_cast<double>(plane_bytes);
  auto* bits =
      reinterpret_cast<uint64_t*>(static_cast<char*>(memory) + slab_bytes);
  for (uint32_t v = 1; v <= slab_count; ++v, bits += words) {
    const abi::BlockRange range = abi::BlocksOfView(v, plane_bytes, page_bytes);
    slabs_[v].first = static_cast<uint32_t>(range.first);
    slabs_[v].blocks = static_cast<uint32_t>(range.size());
    slabs_[v].bits = bits;
  }
  used_ = bits;
  return true;
}

bool BlockAllocator::Link(uint32_t v) {
  if (v == 0 || v > slab_count_ || slabs_[v].state != State::kUnleased) {
    return false;
  }
  Slab& slab = slabs_[v];
  std::fill_n(slab.bits, Words(slab.blocks), ~uint64_t{0});
  if (slab.blocks % kWordBits != 0) {
    slab.bits[slab.blocks / kWordBits] =
        (uint64_t{1} << slab.blocks % kWordBits) - 1;
  }
  slab.free = slab.blocks;
  slab.hint = 0;
  slab.state = State::kLinked;
  free_blocks_ += slab.free;
  Insert(BucketOf(slab.free), v);
  return true;
}

bool BlockAllocator::Leave(uint32_t v) {
  if (v == 0 || v > slab_count_ || slabs_[v].state != State::kLinked) {
    return false;
  }
  SortInRecent();  // now every linked slab is in its bucket
  Slab& slab = slabs_[v];
  Remove(BucketOf(slab.free), v);
  free_blocks_ -= slab.free;
  leaving_blocks_ += slab.blocks - slab.free;
  emptied_slabs_ += slab.free == slab.blocks;
  slab.state = State::kLeaving;
  slab.barrier = steps_begun_;
  Insert(kLeavingList, v);
  return true;
}

// Chooses the current slab. Requires that a linked slab other than the current
// one has a free block.
void BlockAllocator::ChooseCurrent() {
  if (current_ != kNone) Insert(BucketOf(slabs_[current_].free), current_);
  const uint64_t with_free = nonempty_ & kWithFree;
  const auto bucket = static_cast<uint32_t>(std::countr_zero(with_free));
  current_ = heads_[bucket];
  Remove(bucket, current_);
}

uint32_t BlockAllocator::TakeFrom(Slab* slab, uint32_t count, uint32_t* ids) {
  const uint32_t taken = std::min(count, slab->free);
  uint32_t w = slab->hint;
  for (uint32_t n = 0; n < taken;) {
    uint64_t word = slab->bits[w];
    const uint32_t base = slab->first + w * kWordBits;
    for (; word != 0 && n < taken; word &= word - 1) {
      const uint32_t id = base + static_cast<uint32_t>(std::countr_zero(word));
      FlipUsed(id);
      ids[n++] = id;
    }
    slab->bits[w] = word;
    if (word == 0) ++w;
  }
  slab->hint = w;
  slab->free -= taken;
  return taken;
}

bool BlockAllocator::Allocate(uint32_t count, uint32_t* ids) {
  if (count > free_blocks_) return false;
  free_blocks_ -= count;
  for (; count > 0 && recent_count_ > 0; --count) {
    const uint32_t id = recent_[--recent_count_];
    FlipUsed(id);
    *ids++ = id;
  }
  while (count > 0) {
    if (current_ == kNone || slabs_[current_].free == 0) ChooseCurrent();
    const uint32_t taken = TakeFrom(&slabs_[current_], count, ids);
    ids += taken;
    count -= taken;
  }
  return true;
}

// Returns floor(id × page / plane). Because the quotient is rounded, a product
// that is a whole number may come out just below it; the first id of the next
// slab corrects that. A product below a whole number stays below it, since the
// view has fewer bytes than there are exact integers in a double.
uint32_t BlockAllocator::ViewOf(uint32_t id) const {
  auto v = static_cast<uint32_t>(static_cast<double>(id) * views_per_block_);
  if (v > slab_count_) return kNone;
  if (v < slab_count_ && id >= slabs_[v + 1].first) ++v;
  return v;
}

void BlockAllocator::ReturnToSlab(uint32_t id) {
  const uint32_t v = ViewOf(id);
  Slab& slab = slabs_[v];
  const uint32_t local = id - slab.first;
  const uint32_t w = local / kWordBits;
  slab.bits[w] |= uint64_t{1} << local % kWordBits;
  slab.hint = std::min(slab.hint, w);
  const uint32_t free = ++slab.free;
  if (slab.state == State::kLeaving) {
    slab.barrier = steps_begun_;
    --free_blocks_;
    --leaving_blocks_;
    emptied_slabs_ += free == slab.blocks;
    return;
  }
  // At a power of two the slab moves to the next bucket.
  if (v != current_ && (free & (free - 1)) == 0) {
    Remove(BucketOf(free - 1), v);
    Insert(BucketOf(free), v);
  }
}

void BlockAllocator::SortInRecent() {
  while (recent_count_ > 0) ReturnToSlab(recent_[--recent_count_]);
  // Another slab may be the densest now.
  if (current_ != kNone) Insert(BucketOf(slabs_[current_].free), current_);
  current_ = kNone;
}

uint32_t BlockAllocator::Free(uint32_t count, const uint32_t* ids) {
  const bool leaving = heads_[kLeavingList] != kNone;
  for (uint32_t freed = 0; freed < count; ++freed) {
    const uint32_t id = ids[freed];
    if (id >= id_count_ || !IsUsed(id)) return freed;
    FlipUsed(id);
    ++free_blocks_;
    if (leaving) {  // its slab may be one that must not hand it out again
      ReturnToSlab(id);
      continue;
    }
    if (recent_count_ == kRecent) SortInRecent();
    recent_[recent_count_++] = id;
  }
  return count;
}

void BlockAllocator::EndStep(uint64_t step) {
  steps_ended_ = std::max(steps_ended_, std::min(step, steps_begun_));
}

uint32_t BlockAllocator::TakeDrained(uint32_t capacity,
                                     uint32_t* view_indices) {
  uint32_t taken = 0;
  uint32_t next = kNone;
  for (uint32_t v = heads_[kLeavingList]; v != kNone && taken < capacity;
       v = next) {
    Slab& slab = slabs_[v];
    next = slab.next;
    if (slab.free < slab.blocks || slab.barrier > steps_ended_) continue;
    Remove(kLeavingList, v);
    slab.state = State::kUnleased;
    --emptied_slabs_;
    view_indices[taken++] = v;
  }
  return taken;
}

uint32_t BlockAllocator::UsedBlocks(uint32_t v) {
  if (v == 0 || v > slab_count_ || slabs_[v].state == State::kUnleased) {
    return 0;
  }
  SortInRecent();
  return slabs_[v].blocks - slabs_[v].free;
}

void BlockAllocator::Insert(uint32_t list, uint32_t v) {
  Slab& slab = slabs_[v];
  slab.previous = kNone;
  slab.next = heads_[list];
  if (slab.next != kNone) slabs_[slab.next].previous = v;
  heads_[list] = v;
  nonempty_ |= uint64_t{1} << list;
}

void BlockAllocator::Remove(uint32_t list, uint32_t v) {
  const Slab& slab = slabs_[v];
  if (slab.next != kNone) slabs_[slab.next].previous = slab.previous;
  if (slab.previous != kNone) {
    slabs_[slab.previous].next = slab.next;
  } else {
    heads_[list] = slab.next;
    if (slab.next == kNone) nonempty_ &= ~(uint64_t{1} << list);
  }
}

}  // namespace fineserve::shim
