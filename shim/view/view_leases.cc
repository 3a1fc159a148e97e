#include "shim/view/view_leases.h"

#include <string.h>
#include <sys/mman.h>

#include "shim/map/table_bounds.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using abi::SlabWord;

size_t SlabsBytes(uint32_t views, size_t each) {
  return (size_t{views} + 1) * each;
}

}  // namespace

bool ViewLeases::Open(const void* table, size_t table_bytes, uint32_t slot,
                      uint32_t engine_id, uint32_t views) {
  if (table_bytes < sizeof(abi::TableHeader) || slabs_ != nullptr) return false;
  // The header's constants, each of which is read once.
  const auto* header = static_cast<const abi::TableHeader*>(table);
  const uint32_t engines_offset = header->engines_offset;
  const uint32_t slabs_offset = header->slabs_offset;
  if (memcmp(header->magic, abi::kTableMagic, sizeof(header->magic)) != 0 ||
      header->abi_version != abi::kAbiVersion || slot >= abi::kEngineCapacity ||
      views == 0 || views > header->slab_count || engine_id == 0 ||
      !TableHolds(table_bytes, engines_offset, abi::kEngineCapacity,
                  sizeof(abi::EngineEntry)) ||
      !TableHolds(table_bytes, slabs_offset, views, sizeof(abi::SlabEntry))) {
    return false;
  }
  void* memory =
      mmap(nullptr, SlabsBytes(views, sizeof(Slab)), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const auto* base = static_cast<const char*>(table);
  const auto* engines =
      reinterpret_cast<const abi::EngineEntry*>(base + engines_offset);
  entries_ = reinterpret_cast<const abi::SlabEntry*>(base + slabs_offset);
  changes_ = &engines[slot].changes;
  slabs_ = static_cast<Slab*>(memory);
  views_ = views;
  engine_id_ = engine_id;
  seen_ = changes();
  for (uint32_t& n : counts_) n = 0;
  counts_[static_cast<int>(Hold::kNone)] = views;
  Look();
  return true;
}

void ViewLeases::Close() {
  if (slabs_ != nullptr) munmap(slabs_, SlabsBytes(views_, sizeof(Slab)));
  slabs_ = nullptr;
  views_ = 0;
}

void ViewLeases::Move(uint32_t v, Hold to) {
  --counts_[static_cast<int>(slabs_[v].hold)];
  ++counts_[static_cast<int>(to)];
  slabs_[v].hold = to;
}

SlabWord ViewLeases::Word(uint32_t v) const {
  // Acquire: a lease's word is written after its zero fill has completed.
  return SlabWord::Unpack(entries_[v - 1].word.load(std::memory_order_acquire));
}

// Reads the count before the words, so that a change in between makes Changed()
// true.
void ViewLeases::Look() {
  seen_ = changes();
  for (uint32_t v = 1; v <= views_; ++v) LookAt(v, Word(v));
}

void ViewLeases::LookAt(uint32_t v, SlabWord word) {
  Slab& slab = slabs_[v];
  const bool ours =
      abi::IsInView(word) && word.engine == engine_id_ && word.lease != 0;
  const bool asked = word.state == SlabState::kReturning;
  if (ours && word.lease == slab.lease) {
    if (slab.hold == Hold::kHeld && asked) Move(v, Hold::kAsked);
    if (slab.hold == Hold::kArrived && asked) Move(v, Hold::kDone);
    return;
  }
  switch (slab.hold) {
    case Hold::kNone:
    case Hold::kArrived:
    case Hold::kSent:
      if (ours) slab.lease = word.lease;
      Move(v, !ours ? Hold::kNone : asked ? Hold::kDone : Hold::kArrived);
      break;
    case Hold::kHeld:
      Move(v, Hold::kAsked);
      break;
    case Hold::kAsked:
    case Hold::kLeaving:
    case Hold::kDone:
      break;
  }
}

uint32_t ViewLeases::Next(Hold hold, uint32_t v) const {
  if (count(hold) == 0) return 0;
  while (++v <= views_) {
    if (slabs_[v].hold == hold) return v;
  }
  return 0;
}

uint32_t ViewLeases::leased() const {
  return views_ - count(Hold::kNone) - count(Hold::kSent);
}

void ViewLeases::Report(uint32_t v) {
  Move(v, slabs_[v].hold == Hold::kArrived ? Hold::kHeld : Hold::kLeaving);
}

bool ViewLeases::ReturnSlab(uint32_t v) {
  if (v == 0 || v > views_) return false;
  const Hold hold = slabs_[v].hold;
  if (hold != Hold::kHeld && hold != Hold::kAsked && hold != Hold::kLeaving) {
    return false;
  }
  Move(v, Hold::kDone);
  return true;
}

void ViewLeases::SendAgain() {
  Look();
  for (uint32_t v = 0; (v = Next(Hold::kSent, v)) != 0;) Move(v, Hold::kDone);
}

uint32_t ViewLeases::BlocksInUse(uint32_t v) const {
  if (!abi::IsInView(Word(v))) return 0;
  // Relaxed: it is a hint that orders nothing.
  return abi::SlabUse::Unpack(
      entries_[v - 1].asker.load(std::memory_order_relaxed));
}

uint64_t ViewLeases::Memory(uint32_t v) const {
  if (Word(v).state == SlabState::kAbsent) return 0;
  // Relaxed: the daemon writes it before the word, and the word was read with
  // acquire.
  return entries_[v - 1].memory.load(std::memory_order_relaxed) + 1;
}

bool ViewLeases::AnyFreeSince(uint64_t since_ns) const {
  for (uint32_t v = 1; v <= views_; ++v) {
    // Reads the word first: its acquire makes the time that belongs to it
    // visible.
    if (Word(v).state == SlabState::kFree &&
        entries_[v - 1].since_ns.load(std::memory_order_relaxed) <= since_ns) {
      return true;
    }
  }
  return false;
}

}  // namespace fineserve::shim
