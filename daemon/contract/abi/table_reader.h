#ifndef DAEMON_CONTRACT_ABI_TABLE_READER_H_
#define DAEMON_CONTRACT_ABI_TABLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/slab_table.h"

namespace fineserve::abi {

// Plain copies of the slab table's content, after checks. See slab_table.h for
// the meaning of each field.

struct CounterSnapshot {
  uint64_t leases_granted = 0;
  uint64_t leases_denied = 0;
  uint64_t slabs_zeroed = 0;
  uint64_t bytes_zeroed = 0;
  uint64_t slabs_quarantined = 0;
  uint64_t engines_died = 0;
  uint64_t messages_dropped = 0;
  uint64_t connections_refused = 0;
  uint64_t slabs_asked_back = 0;
  uint64_t slabs_returned = 0;
  uint64_t slabs_added = 0;
  uint64_t slabs_withdrawn = 0;
  uint64_t process_lists_useless = 0;
  uint64_t loop_longest_turn_us = 0;
};

struct EngineSnapshot {
  uint32_t id = 0;
  EngineState state = EngineState::kUnused;
  uint32_t uid = 0;
  uint64_t slabs_held = 0;
  uint64_t since_ns = 0;  // CLOCK_MONOTONIC
  // If the engine is quarantined, the members that its quarantine waits for.
  std::vector<uint32_t> member_pids;
  std::string name;  // printable
  ViewRecord view = {};
  uint32_t limit = 0;  // of slabs held, by the operator; 0: none
  // For the next daemon.
  uint32_t slot = 0;          // in the table
  std::string raw_name = {};  // as its members say it
  std::vector<uint64_t> member_images =
      {};  // ProcessImage of living members; of some only the ProcessStart
  std::vector<uint32_t> exited_pids = {};
  uint32_t exited_count = 0;  // more than are listed: the others are not known
};

struct SlabSnapshot {
  SlabWord word;
  uint64_t since_ns = 0;  // CLOCK_MONOTONIC; may be one change behind
  LeaseAsker asker = {};  // unchecked, for the next daemon
};

struct TableSnapshot {
  uint32_t flags = 0;
  uint64_t epoch = 0;
  uint32_t daemon_pid = 0;
  uint64_t granule_bytes = 0;
  uint32_t granules_per_slab = 0;
  uint64_t started_ns = 0;  // CLOCK_REALTIME
  uint32_t last_engine = 0;
  uint32_t last_lease = 0;
  uint32_t wanted_slabs = 0;
  uint32_t daemons = 0;         // that have served the pool
  uint64_t keeper_lost_ns = 0;  // 0: it still has one, or never had one
  uint64_t exhausted_ns = 0;    // 0: it is not
  uint8_t gpu_uuid[16] = {};
  std::string gpu_name;  // printable
  CounterSnapshot counters;
  std::vector<EngineSnapshot> engines;  // those in use, in table order
  // Entries that were being written at every attempt to read them: the daemon
  // kept changing them, or died while it did.
  uint32_t torn_engines = 0;
  std::vector<SlabSnapshot> slabs;

  uint64_t slab_bytes() const { return granule_bytes * granules_per_slab; }
  uint64_t pool_bytes() const { return slab_bytes() * slabs.size(); }
  // True if the next daemon can take over the pool.
  bool is_kept() const {
    return (flags & kTableIsKept) != 0 && keeper_lost_ns == 0;
  }
};

// Maps a slab table and reads it. The content may be hostile or half-written:
// everything is copied once, then the copy is checked.
//
// Thread-safe: reading changes nothing. The mapping lives as long as the
// reader; the descriptor may be closed once Map has returned.
class TableReader {
 public:
  // Maps `fd` read-only. Fails unless it is a memfd sealed against shrinking:
  // without the seal its writer could truncate it while we read, and the next
  // access would raise SIGBUS.
  static absl::StatusOr<TableReader> Map(int fd);

  TableReader(TableReader&& other) noexcept;
  TableReader& operator=(TableReader&& other) noexcept;
  ~TableReader();

  // Reads the table. FailedPrecondition if it has another abi_version (the
  // message names both), DataLoss if anything in it contradicts slab_table.h
  // (the message names field and value). Each slab is exact, but together they
  // are not a consistent snapshot.
  absl::StatusOr<TableSnapshot> Read() const { return Read(base_, bytes_); }
  // Reads a table in memory in the same way.
  static absl::StatusOr<TableSnapshot> Read(const void* base, size_t bytes);

 private:
  TableReader(const void* base, size_t bytes) : base_(base), bytes_(bytes) {}

  const void* base_;
  size_t bytes_;
};

// Maps a table and reads it once.
absl::StatusOr<TableSnapshot> ReadTable(int fd);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_TABLE_READER_H_
