#include "daemon/fineserved/pool_service/scoreboard_memfd.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <utility>

#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/view_scoreboard.h"

namespace fineserve::server {
absl::StatusOr<abi::SealedMemfd> MakeEngineScoreboard(uint64_t epoch,
                                                      slab::EngineId engine,
                                                      pid_t pid) {
  abi::SealedMemfd memfd = abi::SealedMemfd::Create(abi::kScoreboardMemfdName,
                                                    abi::kScoreboardBytes);
  if (!memfd.valid())
    return base::Cannot("make memfd", abi::kScoreboardMemfdName);
  auto* header = new (memfd.base()) abi::ScoreboardHeader{};
  memcpy(header->magic, abi::kScoreboardMagic, sizeof(header->magic));
  header->abi_version = abi::kAbiVersion;
  header->pid = static_cast<uint32_t>(pid);
  header->scoreboard_bytes = abi::kScoreboardBytes;
  header->epoch = epoch;
  header->engine_id = slab::Number(engine);
  return memfd;
}

absl::StatusOr<ViewScoreboardMemfd> ViewScoreboardMemfd::Create(
    uint64_t epoch, slab::EngineId engine, pid_t pid, uint32_t slab_count) {
  abi::SealedMemfd memfd = abi::SealedMemfd::Create(
      abi::kViewScoreboardMemfdName, abi::ViewScoreboardBytes(slab_count));
  // The memfd stays writable: the engine has not mapped it yet, and other
  // processes of this user can write nothing worse than the engine itself can.
  if (!memfd.valid() || !memfd.SealForGood()) {
    return base::Cannot("make memfd", abi::kViewScoreboardMemfdName);
  }
  auto* header = new (memfd.base()) abi::ViewScoreboardHeader{};
  memcpy(header->magic, abi::kViewScoreboardMagic, sizeof(header->magic));
  header->abi_version = abi::kAbiVersion;
  header->pid = static_cast<uint32_t>(pid);
  header->scoreboard_bytes = memfd.bytes();
  header->epoch = epoch;
  header->engine_id = slab::Number(engine);
  header->slab_count = slab_count;
  return ViewScoreboardMemfd(std::move(memfd), slab_count);
}

absl::StatusOr<ViewScoreboardMemfd> ViewScoreboardMemfd::Adopt(
    driver::Descriptor made, slab::EngineId engine, uint32_t slab_count) {
  abi::SealedMemfd memfd = abi::SealedMemfd::Adopt(std::move(made));
  if (!memfd.valid())
    return base::Cannot("make memfd", abi::kViewScoreboardMemfdName);
  abi::ViewScoreboardHeader header;
  if (memfd.bytes() == abi::ViewScoreboardBytes(slab_count)) {
    memcpy(static_cast<void*>(&header), memfd.base(), sizeof(header));
    if (memcmp(header.magic, abi::kViewScoreboardMagic, sizeof(header.magic)) ==
            0 &&
        header.engine_id == slab::Number(engine)) {
      return ViewScoreboardMemfd(std::move(memfd), slab_count);
    }
  }
  return absl::InvalidArgumentError("it is another memory");
}

uint32_t ViewScoreboardMemfd::UsedBlocks(slab::SlabId slab) const {
  return Word(size_t{slab::Number(slab)} + 1);
}

bool ViewScoreboardMemfd::Wishes(slab::SlabId slab) const {
  return Word(size_t{slab_count_} + 2 + slab::Number(slab)) != 0;
}

// All loads here are relaxed: these figures order nothing.
uint64_t ViewScoreboardMemfd::SwapsNs() const {
  return header().swaps_ns.load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardMemfd::Steps() const {
  return header().steps_ended.load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardMemfd::LongestSwapNs() const {
  return header().longest_swap_ns.load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardMemfd::SureBlocks() const {
  return header().sure_blocks.load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardMemfd::FirstBlocks() const {
  return header().first_blocks.load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardMemfd::MostBlocks() const {
  return header().most_blocks.load(std::memory_order_relaxed);
}

// Returns one of the words after the header.
uint32_t ViewScoreboardMemfd::Word(size_t index) const {
  const size_t offset =
      sizeof(abi::ViewScoreboardHeader) + index * sizeof(uint32_t);
  if (offset + sizeof(uint32_t) > memfd_.bytes()) return 0;
  // Relaxed: a hint, which the engine may write at any time.
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(
                             static_cast<const char*>(memfd_.base()) + offset),
                         __ATOMIC_RELAXED);
}

}  // namespace fineserve::server
