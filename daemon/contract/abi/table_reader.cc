#include "daemon/contract/abi/table_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/header_copy.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/abi/version.h"

namespace fineserve::abi {
namespace {

constexpr size_t kMostBytes = TableBytes(kMostSlabs);

// Loads one word of memory that another process may be writing. Does not use
// std::atomic's members, because TableHeader's constants are plain fields.
uint64_t LoadWord(const void* base, size_t offset, int order) {
  const auto* word = reinterpret_cast<const uint64_t*>(
      static_cast<const char*>(base) + offset);
  // Acquire where it pairs with TableWriter's releases.
  return order == __ATOMIC_ACQUIRE ? __atomic_load_n(word, __ATOMIC_ACQUIRE)
                                   : __atomic_load_n(word, __ATOMIC_RELAXED);
}

void CopyWords(const void* base, size_t bytes, void* to) {
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = LoadWord(base, at, __ATOMIC_RELAXED);
    memcpy(static_cast<char*>(to) + at, &word, sizeof(word));
  }
}

template <typename... Parts>
absl::Status BadTable(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("slab table: ", parts...));
}

absl::Status CheckIdentity(const TableHeader& h, size_t file_bytes) {
  if (memcmp(h.magic, kTableMagic, sizeof(kTableMagic)) != 0) {
    return BadTable("it does not begin with the table magic");
  }
  if (h.abi_version != kAbiVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("slab table has ABI version ", h.abi_version,
                     ", this program reads version ", kAbiVersion));
  }
  if (h.table_bytes != file_bytes) {
    return BadTable("table_bytes is ", h.table_bytes, ", the file has ",
                    file_bytes);
  }
  if (h.epoch == 0) return BadTable("epoch is 0");
  if (h.daemon_pid == 0 || h.daemon_pid > INT32_MAX) {
    return BadTable("daemon_pid is ", h.daemon_pid);
  }
  if (!IsTerminated(h.gpu_name)) return BadTable("gpu_name is not terminated");
  return absl::OkStatus();
}

// True if `count` entries of `entry_bytes` at `offset` are within the file.
bool Within(uint64_t offset, uint64_t count, uint64_t entry_bytes,
            uint64_t file_bytes) {
  return offset % 8 == 0 && offset >= sizeof(TableHeader) &&
         offset <= file_bytes && count <= (file_bytes - offset) / entry_bytes;
}

absl::Status CheckLayout(const TableHeader& h, size_t file_bytes) {
  if (h.engine_capacity != kEngineCapacity) {
    return BadTable("engine_capacity is ", h.engine_capacity);
  }
  if (!Within(h.engines_offset, h.engine_capacity, sizeof(EngineEntry),
              file_bytes)) {
    return BadTable("engines_offset ", h.engines_offset, " is out of bounds");
  }
  if (h.slab_count == 0 || h.slab_count > kMostSlabs) {
    return BadTable("slab_count is ", h.slab_count);
  }
  if (h.slabs_offset <
          h.engines_offset + h.engine_capacity * sizeof(EngineEntry) ||
      !Within(h.slabs_offset, h.slab_count, sizeof(SlabEntry), file_bytes)) {
    return BadTable("slabs_offset ", h.slabs_offset, " with ", h.slab_count,
                    " slabs is out of bounds");
  }
  const uint64_t granules = uint64_t{h.slab_count} * h.granules_per_slab;
  uint64_t pool_bytes;
  if (granules == 0 || h.granule_bytes == 0 ||
      __builtin_mul_overflow(granules, h.granule_bytes, &pool_bytes)) {
    return BadTable("granules of ", h.granule_bytes, " bytes, ",
                    h.granules_per_slab, " per slab, are not a valid pool");
  }
  return absl::OkStatus();
}

CounterSnapshot CopyCounters(const TableCounters& c) {
  const auto get = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {get(c.leases_granted),        get(c.leases_denied),
          get(c.slabs_zeroed),          get(c.bytes_zeroed),
          get(c.slabs_quarantined),     get(c.engines_died),
          get(c.messages_dropped),      get(c.connections_refused),
          get(c.slabs_asked_back),      get(c.slabs_returned),
          get(c.slabs_added),           get(c.slabs_withdrawn),
          get(c.process_lists_useless), get(c.loop_longest_turn_us)};
}

void CopyConstants(const TableHeader& h, TableSnapshot* to) {
  to->flags = h.flags;
  to->epoch = h.epoch;
  to->daemon_pid = h.daemon_pid;
  to->granule_bytes = h.granule_bytes;
  to->granules_per_slab = h.granules_per_slab;
  to->started_ns = h.started_ns;
  to->last_engine = h.last_engine;
  to->last_lease = h.last_lease;
  to->wanted_slabs = h.wanted_slabs;
  to->daemons = h.daemons;
  to->keeper_lost_ns = h.keeper_lost_ns;
  to->exhausted_ns = h.exhausted_ns;
  memcpy(to->gpu_uuid, h.gpu_uuid, sizeof(to->gpu_uuid));
  to->gpu_name = Printable(h.gpu_name);
  to->counters = CopyCounters(h.counters);
}

bool IsPid(uint32_t pid) { return pid != 0 && pid <= INT32_MAX; }

// Returns only the member's start if a daemon has not recorded which program it
// runs.
uint64_t ImageOf(const EngineRecord& r, uint32_t member) {
  const uint32_t place = kMemberCapacity - 1 - member;
  const uint64_t image = place < r.member_count ? 0 : r.member_starts[place];
  const uint64_t start = r.member_starts[member];
  return StartOf(image) == start ? image : start;
}

absl::StatusOr<EngineSnapshot> CheckEngine(const EngineRecord& r,
                                           uint32_t slot) {
  if (r.state > EngineState::kQuarantined) {
    return BadTable("engine slot ", slot, ": state is ",
                    static_cast<uint32_t>(r.state));
  }
  if (r.member_count > kMemberCapacity) {
    return BadTable("engine slot ", slot, ": member_count is ", r.member_count);
  }
  if (!IsTerminated(r.name)) {
    return BadTable("engine slot ", slot, ": name is not terminated");
  }
  if (r.view.mode > ViewMode::kStrict || r.view.state > ViewState::kSuspended) {
    return BadTable("engine slot ", slot, ": view of mode ",
                    static_cast<uint32_t>(r.view.mode), " in state ",
                    static_cast<uint32_t>(r.view.state));
  }
  EngineSnapshot engine;
  engine.slot = slot;
  engine.id = r.id;
  engine.state = r.state;
  engine.uid = r.uid;
  engine.slabs_held = r.slabs_held;
  engine.limit = r.limit;
  engine.since_ns = r.since_ns;
  engine.view = r.view;
  engine.exited_count = r.exited_count;
  for (uint32_t i = 0; i < r.member_count; ++i) {
    if (!IsPid(r.member_pids[i])) {
      return BadTable("engine slot ", slot, ": member pid is ",
                      r.member_pids[i]);
    }
    engine.member_pids.push_back(r.member_pids[i]);
    engine.member_images.push_back(ImageOf(r, i));
  }
  for (uint32_t i = 0; i < std::min(r.exited_count, kMemberCapacity); ++i) {
    if (!IsPid(r.exited_pids[i])) {
      return BadTable("engine slot ", slot, ": exited pid is ",
                      r.exited_pids[i]);
    }
    engine.exited_pids.push_back(r.exited_pids[i]);
  }
  if (r.state == EngineState::kQuarantined) {
    engine.member_pids = engine.exited_pids;
  }
  engine.raw_name = r.name;
  engine.name = Printable(r.name);
  return engine;
}

absl::Status ReadEngines(const void* base, const TableHeader& h,
                         TableSnapshot* to) {
  for (uint32_t slot = 0; slot < h.engine_capacity; ++slot) {
    const auto* entry = reinterpret_cast<const EngineEntry*>(
        static_cast<const char*>(base) + h.engines_offset +
        slot * sizeof(EngineEntry));
    EngineRecord record;
    if (!CopyRecord(*entry, &record)) {
      ++to->torn_engines;
      continue;
    }
    if (record.state == EngineState::kUnused) continue;
    absl::StatusOr<EngineSnapshot> engine = CheckEngine(record, slot);
    if (!engine.ok()) return engine.status();
    to->engines.push_back(*std::move(engine));
  }
  return absl::OkStatus();
}

absl::Status ReadSlabs(const void* base, const TableHeader& h,
                       TableSnapshot* to) {
  to->slabs.reserve(h.slab_count);
  for (uint32_t i = 0; i < h.slab_count; ++i) {
    const size_t offset = h.slabs_offset + i * sizeof(SlabEntry);
    // Acquire: pairs with TableWriter::SetSlab, so that since_ns belongs to
    // this change or a later one.
    const SlabWord word = SlabWord::Unpack(
        LoadWord(base, offset + offsetof(SlabEntry, word), __ATOMIC_ACQUIRE));
    if (static_cast<int>(word.state) >= kSlabStateCount) {
      return BadTable("slab ", i, ": state is ", static_cast<int>(word.state));
    }
    to->slabs.push_back(
        {word,
         LoadWord(base, offset + offsetof(SlabEntry, since_ns),
                  __ATOMIC_RELAXED),
         LeaseAsker::Unpack(LoadWord(base, offset + offsetof(SlabEntry, asker),
                                     __ATOMIC_RELAXED))});
  }
  return absl::OkStatus();
}

absl::Status CheckFile(int fd, size_t* bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return BadTable("not a memfd that is sealed against shrinking");
  }
  struct stat st;
  if (fstat(fd, &st) != 0) return BadTable(base::WithErrno("fstat"));
  *bytes = static_cast<size_t>(st.st_size);
  if (*bytes < sizeof(TableHeader) || *bytes > kMostBytes) {
    return BadTable("the file has ", *bytes, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TableReader> TableReader::Map(int fd) {
  size_t bytes = 0;
  if (absl::Status s = CheckFile(fd, &bytes); !s.ok()) return s;
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return BadTable(base::WithErrno("mmap"));
  return TableReader(base, bytes);
}

TableReader::TableReader(TableReader&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

TableReader& TableReader::operator=(TableReader&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

TableReader::~TableReader() {
  if (base_ != nullptr) munmap(const_cast<void*>(base_), bytes_);
}

absl::StatusOr<TableSnapshot> TableReader::Read(const void* base,
                                                size_t bytes) {
  HeaderCopy<TableHeader> header;
  CopyWords(base, sizeof(TableHeader), header.bytes);
  if (absl::Status s = CheckIdentity(*header, bytes); !s.ok()) return s;
  if (absl::Status s = CheckLayout(*header, bytes); !s.ok()) return s;
  TableSnapshot snapshot;
  CopyConstants(*header, &snapshot);
  if (absl::Status s = ReadEngines(base, *header, &snapshot); !s.ok()) {
    return s;
  }
  if (absl::Status s = ReadSlabs(base, *header, &snapshot); !s.ok()) return s;
  return snapshot;
}

absl::StatusOr<TableSnapshot> ReadTable(int fd) {
  const absl::StatusOr<TableReader> reader = TableReader::Map(fd);
  if (!reader.ok()) return reader.status();
  return reader->Read();
}

}  // namespace fineserve::abi
