#include "daemon/slab/table_writer.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/transport.h"

namespace fineserve::slab {
namespace {

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
  if (!memfd.valid() || !memfd.SealAgainstWriters()) {
    return absl::InternalError(
        absl::StrCat("cannot make the slab table: ", strerror(errno)));
  }
  std::unique_ptr<TableWriter> writer(new TableWriter(std::move(memfd), clock));
  writer->FillHeader(identity);
  return writer;
}

TableWriter::TableWriter(abi::SealedMemfd memfd, const Clock* clock)
    : memfd_(std::move(memfd)),
      clock_(clock),
      header_(new (memfd_.base()) abi::TableHeader{}) {}

void TableWriter::FillHeader(const TableIdentity& identity) {
  header_->abi_version = abi::kAbiVersion;
  header_->flags = identity.flags;
  header_->table_bytes = memfd_.bytes();
  header_->epoch = identity.epoch;
  header_->daemon_pid = static_cast<uint32_t>(getpid());
  header_->engine_capacity = abi::kEngineCapacity;
  header_->engines_offset = sizeof(abi::TableHeader);
  header_->slabs_offset = sizeof(abi::TableHeader) +
                          abi::kEngineCapacity * sizeof(abi::EngineEntry);
  header_->granule_bytes = identity.geometry.granule_bytes;
  header_->granules_per_slab = identity.geometry.granules_per_slab;
  header_->slab_count = identity.geometry.slab_count;
  header_->started_ns = WallClockNs();
  memcpy(header_->gpu_uuid, identity.gpu_uuid, sizeof(header_->gpu_uuid));
  abi::CopyText(header_->gpu_name, identity.gpu_name.c_str());
  memcpy(header_->magic, abi::kTableMagic, sizeof(abi::kTableMagic));
  char* base = static_cast<char*>(memfd_.base());
  engines_ =
      reinterpret_cast<abi::EngineEntry*>(base + header_->engines_offset);
  slabs_ = reinterpret_cast<abi::SlabEntry*>(base + header_->slabs_offset);
}

void TableWriter::SetSlab(SlabId slab, abi::SlabWord word) {
  abi::SlabEntry& entry = slabs_[Number(slab)];
  const uint64_t before = entry.word.load(std::memory_order_relaxed);
  if (abi::SlabWord::Unpack(before).state == abi::SlabState::kAbsent &&
      word.state != abi::SlabState::kAbsent) {
    // The store of `word` below publishes it.
    entry.memory.fetch_add(1, std::memory_order_relaxed);
  }
  entry.since_ns.store(clock_->NowNs(), std::memory_order_relaxed);
  // Release: a reader that sees the new word sees its since_ns too. Pairs with
  // the acquire in TableReader.
  entry.word.store(abi::SlabWord::Pack(word), std::memory_order_release);
}

void TableWriter::SetEngine(uint32_t slot, const abi::EngineRecord& record) {
  abi::EngineEntry& entry = engines_[slot];
  uint64_t words[sizeof(record) / 8];
  memcpy(words, &record, sizeof(record));
  const uint32_t sequence = entry.sequence.load(std::memory_order_relaxed);
  // Odd: being written. The release stores below keep this store before the
  // words; they pair with the acquire loads of the words in TableReader.
  entry.sequence.store(sequence + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < sizeof(record) / 8; ++i) {
    entry.record[i].store(words[i], std::memory_order_release);
  }
  // Even again. Pairs with TableReader's first acquire of the sequence.
  entry.sequence.store(sequence + 2, std::memory_order_release);
}

void TableWriter::Announce(uint32_t slot) {
  std::atomic<uint32_t>& changes = engines_[slot].changes;
  // Release: the slabs' words are in place. Pairs with the engine's acquire.
  changes.fetch_add(1, std::memory_order_release);
  // Not private: the waiters are other processes.
  syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fineserve::slab
