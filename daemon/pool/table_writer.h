#ifndef DAEMON_POOL_TABLE_WRITER_H_
#define DAEMON_POOL_TABLE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/sealed_memfd.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/pool/geometry/pool_geometry.h"
#include "daemon/pool/slab_ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::slab {

// A table's constants about its pool.
struct TableIdentity {
  uint64_t epoch = 0;
  uint32_t flags = 0;
  uint8_t gpu_uuid[16] = {};
  std::string gpu_name;
  PoolGeometry geometry;
};

// Blocks that admission could count on for an engine.
struct SureBlocks {
  uint64_t running = 0;  // beside requests of its own
  uint64_t first = 0;    // while it runs nothing
};

// Creates the slab table (daemon/contract/abi/slab_table.h) and is its only
// writer. Confined to the daemon's thread; other processes may read at any
// time.
class TableWriter {
 public:
  // The memfd is sealed against resizing.
  static absl::StatusOr<std::unique_ptr<TableWriter>> Create(
      const TableIdentity& identity, const Clock* clock);
  // Takes over the table of a daemon that has ended. `kept` is that daemon's
  // kept_descriptor(), whose content TableReader has found sound.
  static absl::StatusOr<std::unique_ptr<TableWriter>> Adopt(
      driver::Descriptor kept, const Clock* clock);
  // Declares that this process serves the pool, as Create does. After Adopt,
  // call this only once the table names the former daemons whose end is still
  // awaited (PoolState::HoldBackFills).
  void Serve();

  // Publishes who asked for a slab's lease, and then the slab's word. If the
  // word has not changed, publishes only the asker.
  void SetSlab(SlabId slab, abi::SlabWord word, abi::LeaseAsker asker = {});

  // Publishes how many blocks of a slab are in use in a view.
  void ShowUse(SlabId slab, uint32_t blocks) {
    // Relaxed: a hint on which no other data depends.
    slabs_[Number(slab)].asker.store(abi::SlabUse::Pack(blocks),
                                     std::memory_order_relaxed);
  }

  // Publishes an engine in `slot` < kEngineCapacity.
  void SetEngine(uint32_t slot, const abi::EngineRecord& record);
  void ClearEngine(uint32_t slot) {
    SetEngine(slot, {});
    ShowSure(slot, absl::nullopt);
  }
  // Publishes the blocks that admission could count on for an engine that spans
  // GPUs, and returns whether they have changed.
  bool ShowSure(uint32_t slot, absl::optional<SureBlocks> sure);

  // Publishes what the next daemon has to know (TableHeader). To be called
  // before SetSlab and SetEngine use these numbers.
  void SetMarks(uint32_t last_engine, uint32_t last_lease,
                uint32_t wanted_slabs);

  // Sets whether processes may ask for room (lease_messages.h).
  void SetGivesRoom(bool gives) {
    // Relaxed: it publishes nothing else.
    header_->gives_room.store(gives, std::memory_order_relaxed);
  }

  // Records that nothing keeps the pool for the next daemon from now on.
  void LoseKeeper() {
    // Relaxed: it publishes nothing else.
    header_->keeper_lost_ns.store(clock_->NowNs(), std::memory_order_relaxed);
  }

  // Publishes whether views want more slabs while none is free.
  void SetExhausted(bool is_exhausted) {
    const bool said = header_->exhausted_ns.load(std::memory_order_relaxed);
    if (said == is_exhausted) return;
    // Relaxed: it publishes nothing else.
    header_->exhausted_ns.store(is_exhausted ? clock_->NowNs() : 0,
                                std::memory_order_relaxed);
  }

  // Notifies the engine in `slot` that slabs of its view have changed, and
  // wakes its threads that wait for this (slab_table.h, "Waiting").
  void Announce(uint32_t slot);

  uint64_t epoch() const { return header_->epoch; }
  abi::TableCounters& counters() { return header_->counters; }
  const abi::TableCounters& counters() const { return header_->counters; }
  // Number of daemons that have served this pool; relaxed: a statistic.
  uint32_t daemons() const {
    return header_->daemons.load(std::memory_order_relaxed);
  }
  // Returns the descriptor to send to peers, which can only read through it.
  int descriptor() const { return read_only_.get(); }
  // Returns the descriptor for the next daemon, which continues to write
  // through it.
  int kept_descriptor() const { return memfd_.descriptor(); }

 private:
  TableWriter(abi::SealedMemfd memfd, const Clock* clock);
  static absl::StatusOr<std::unique_ptr<TableWriter>> Make(
      abi::SealedMemfd memfd, const Clock* clock);
  void FillHeader(const TableIdentity& identity);

  const abi::SealedMemfd memfd_;
  const driver::Descriptor read_only_;
  const Clock* const clock_;
  bool serves_ = false;
  abi::TableHeader* const header_;
  abi::EngineEntry* const engines_;
  abi::SlabEntry* const slabs_;
};

// Adds to a counter of the table. Relaxed: a statistic that publishes nothing
// else.
inline void Count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_TABLE_WRITER_H_
