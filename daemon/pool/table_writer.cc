#include "daemon/pool/table_writer.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <new>
#include <utility>

#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/transport.h"

namespace fineserve::slab {

using abi::TableHeader;

namespace {

constexpr uint32_t kEnginesOffset = sizeof(TableHeader);
constexpr uint32_t kSlabsOffset =
    kEnginesOffset + abi::kEngineCapacity * sizeof(abi::EngineEntry);

uint64_t WallClockNs() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableWriter>> TableWriter::Create(
    const TableIdentity& identity, const Clock* clock) {
  abi::SealedMemfd memfd = abi::SealedMemfd::Create(
      abi::kTableMemfdName, abi::TableBytes(identity.geometry.slab_count));
  if (memfd.valid() && memfd.SealForGood()) new (memfd.base()) TableHeader{};
  absl::StatusOr<std::unique_ptr<TableWriter>> writer =
      Make(std::move(memfd), clock);
  if (!writer.ok()) return writer;
  (*writer)->FillHeader(identity);
  (*writer)->Serve();
  return writer;
}

absl::StatusOr<std::unique_ptr<TableWriter>> TableWriter::Adopt(
    driver::Descriptor kept, const Clock* clock) {
  return Make(abi::SealedMemfd::Adopt(std::move(kept)), clock);
}

absl::StatusOr<std::unique_ptr<TableWriter>> TableWriter::Make(
    abi::SealedMemfd memfd, const Clock* clock) {
  if (memfd.valid()) {
    std::unique_ptr<TableWriter> writer(
        new TableWriter(std::move(memfd), clock));
    if (writer->read_only_.valid()) return writer;
  }
  return base::ErrnoStatus("cannot map the slab table");
}

TableWriter::TableWriter(abi::SealedMemfd memfd, const Clock* clock)
    : memfd_(std::move(memfd)),
      read_only_(memfd_.ReadOnly()),
      clock_(clock),
      header_(static_cast<TableHeader*>(memfd_.base())),
      engines_(reinterpret_cast<abi::EngineEntry*>(
          static_cast<char*>(memfd_.base()) + kEnginesOffset)),
      slabs_(reinterpret_cast<abi::SlabEntry*>(
          static_cast<char*>(memfd_.base()) + kSlabsOffset)) {}

void TableWriter::FillHeader(const TableIdentity& identity) {
  header_->abi_version = abi::kAbiVersion;
  header_->flags = identity.flags;
  header_->table_bytes = memfd_.bytes();
  header_->epoch = identity.epoch;
  header_->engine_capacity = abi::kEngineCapacity;
  header_->engines_offset = kEnginesOffset;
  header_->slabs_offset = kSlabsOffset;
  header_->granule_bytes = identity.geometry.granule_bytes;
  header_->granules_per_slab = identity.geometry.granules_per_slab;
  header_->slab_count = identity.geometry.slab_count;
  memcpy(header_->gpu_uuid, identity.gpu_uuid, sizeof(header_->gpu_uuid));
  abi::CopyText(header_->gpu_name, identity.gpu_name.c_str());
  memcpy(header_->magic, abi::kTableMagic, sizeof(abi::kTableMagic));
}

void TableWriter::Serve() {
  if (std::exchange(serves_, true)) return;
  __atomic_store_n(&header_->daemon_pid, static_cast<uint32_t>(getpid()),
                   __ATOMIC_RELAXED);
  __atomic_store_n(&header_->started_ns, WallClockNs(), __ATOMIC_RELAXED);
  header_->daemons.fetch_add(1, std::memory_order_relaxed);
  header_->keeper_lost_ns.store(0, std::memory_order_relaxed);
}

void TableWriter::SetMarks(uint32_t last_engine, uint32_t last_lease,
                           uint32_t wanted_slabs) {
  // Relaxed: the release stores of the words and records that follow keep this
  // store before them, and it is read only after this process has ended.
  header_->last_engine.store(last_engine, std::memory_order_relaxed);
  header_->last_lease.store(last_lease, std::memory_order_relaxed);
  header_->wanted_slabs.store(wanted_slabs, std::memory_order_relaxed);
}

void TableWriter::SetSlab(SlabId slab, abi::SlabWord word,
                          abi::LeaseAsker asker) {
  abi::SlabEntry& entry = slabs_[Number(slab)];
  const uint64_t before = entry.word.load(std::memory_order_relaxed);
  const bool same = before == abi::SlabWord::Pack(word);
  // Relaxed: the asker is read only after this process has ended. If the asker
  // is of another lease than the word, it means nothing, so it need not be
  // cleared when a lease ends.
  if (same || asker.request != 0) {
    entry.asker.store(abi::LeaseAsker::Pack(asker), std::memory_order_relaxed);
  }
  if (same) return;
  if (abi::SlabWord::Unpack(before).state == abi::SlabState::kAbsent &&
      word.state != abi::SlabState::kAbsent) {
    // The store of `word` below publishes it.
    entry.memory.fetch_add(1, std::memory_order_relaxed);
  }
  entry.since_ns.store(clock_->NowNs(), std::memory_order_relaxed);
  // Release: a reader that sees the new word also sees its since_ns. Pairs with
  // the acquire in TableReader.
  entry.word.store(abi::SlabWord::Pack(word), std::memory_order_release);
}

void TableWriter::SetEngine(uint32_t slot, const abi::EngineRecord& record) {
  abi::StoreRecord(record, &engines_[slot]);
}

bool TableWriter::ShowSure(uint32_t slot, absl::optional<SureBlocks> sure) {
  // Relaxed: no other data depends on these figures.
  const auto show = [](std::atomic<uint64_t>* to, uint64_t value) {
    return to->exchange(value, std::memory_order_relaxed) != value;
  };
  abi::EngineEntry& entry = engines_[slot];
  const bool running = show(&entry.sure_blocks, sure ? sure->running + 1 : 0);
  const bool first = show(&entry.first_blocks, sure ? sure->first + 1 : 0);
  return running || first;
}

void TableWriter::Announce(uint32_t slot) {
  std::atomic<uint32_t>& changes = engines_[slot].changes;
  // Release: a reader that sees the new count also sees the slabs' words. Pairs
  // with the engine's acquire.
  changes.fetch_add(1, std::memory_order_release);
  // Not a private futex: the waiters are other processes.
  syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fineserve::slab
