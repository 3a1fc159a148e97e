#ifndef DAEMON_CONTRACT_ABI_SLAB_TABLE_H_
#define DAEMON_CONTRACT_ABI_SLAB_TABLE_H_

// The slab table: says which engine holds which slab of one GPU's pool. One
// memfd named "fineserve-table", sealed against resizing. The daemon alone
// writes; everyone else gets a read-only descriptor. It outlives the daemon in
// every engine that mapped it, and if the daemon's descriptors are kept (design
// note 0029), the next daemon goes on with this very table, which has all that
// it needs to know of its predecessor's decisions.
//
// Bytes:
//   0                   TableHeader                       4,096 bytes
//   engines_offset      EngineEntry[engine_capacity]      1,024 bytes each
//   slabs_offset        SlabEntry[slab_count]                32 bytes each
//
// Reading. The daemon may change or die at any instruction, so a reader copies,
// then checks the copy (table_reader.h). Three rules make copies consistent:
//   * TableHeader's constants are written before the memfd is shared;
//     daemon_pid and started_ns change when another daemon takes over, and
//     gives_room with the configuration.
//   * A SlabEntry's state is its single 64-bit word. `since_ns` beside it is
//     for display only and may be one change ahead.
//   * An EngineEntry has two copies of its record, and its sequence says which
//     one counts; the next one is written into the other. So a record is whole
//     even if its writer dies in the middle. A reader retries a bounded number
//     of times while it changes, then reports it as torn.
//
// Waiting. After it changes slabs of an engine with a view, the daemon
// increments the `changes` word of that engine's entry and wakes its futex
// (shared, on the memfd). The engine reads its slabs' words when `changes`
// differs from what it last saw. It may sleep on the futex, but only for a
// bounded time, because the daemon may die.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/kv_shape.h"
#include "daemon/contract/abi/version.h"

namespace fineserve::abi {

inline constexpr char kTableMagic[8] = {'F', 'S', 'T', 'A', 'B', 'L', 'E', 0};
inline constexpr char kTableMemfdName[] = "fineserve-table";
inline constexpr uint32_t kEngineCapacity = 64;
inline constexpr uint32_t kMemberCapacity = 16;
inline constexpr size_t kNameBytes = 64;  // NUL included

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// State of a slab. FREE, PARTIAL and FULL are the paper's states (§5.2); a slab
// passes through the others between two owners.
enum class SlabState : uint8_t {
  kFree = 0,         // zeroed, leased to no engine
  kPartial = 1,      // leased, some blocks in use
  kFull = 2,         // leased, all blocks in use (or a whole-slab lease)
  kZeroing = 3,      // the zero fill has not completed
  kReturning = 4,    // asked back; the engine may still touch it
  kQuarantined = 5,  // its engine died; the driver may still run its kernels
  kAbsent = 6,       // no memory behind it: the pool may grow into it
};
inline constexpr int kSlabStateCount = 7;

enum class EngineState : uint32_t {
  kUnused = 0,
  kAlive = 1,
  kQuarantined = 2,  // every member exited; the driver still lists one
};

// A slab's word: state (8 bits) | engine (24) | lease (32). Engine and lease
// are 0 for a slab without an owner.
struct SlabWord {
  SlabState state = SlabState::kFree;
  uint32_t engine = 0;
  uint32_t lease = 0;

  static constexpr uint64_t Pack(SlabWord w) {
    return static_cast<uint64_t>(w.state) |
           (static_cast<uint64_t>(w.engine & 0xffffff) << 8) |
           (static_cast<uint64_t>(w.lease) << 32);
  }
  static constexpr SlabWord Unpack(uint64_t word) {
    return {static_cast<SlabState>(word & 0xff),
            static_cast<uint32_t>(word >> 8) & 0xffffff,
            static_cast<uint32_t>(word >> 32)};
  }
};

// Identifies the request for a lease of whole slabs: lease (32 bits) | pid (22,
// as many as Linux has) | request (10). It is for the next daemon, to which the
// request may be repeated.
struct LeaseAsker {
  uint32_t lease = 0;
  uint32_t pid = 0;
  uint32_t request = 0;

  static constexpr uint64_t Pack(LeaseAsker a) {
    return static_cast<uint64_t>(a.lease) |
           (static_cast<uint64_t>(a.pid & 0x3fffff) << 32) |
           (static_cast<uint64_t>(a.request) << 54);
  }
  static constexpr LeaseAsker Unpack(uint64_t asker) {
    return {static_cast<uint32_t>(asker),
            static_cast<uint32_t>(asker >> 32) & 0x3fffff,
            static_cast<uint32_t>(asker >> 54)};
  }
};

// Number of a slab's blocks in use in a view, as reported by its engine: blocks
// (32 bits) | 0 (32), which is not a valid lease number.
struct SlabUse {
  static constexpr uint64_t Pack(uint32_t blocks) {
    return static_cast<uint64_t>(blocks) << 32;
  }
  static constexpr uint32_t Unpack(uint64_t asker) {
    return static_cast<uint32_t>(asker) == 0
               ? static_cast<uint32_t>(asker >> 32)
               : 0;
  }
};

// True if a view holds the slab, by a lease for this slab alone. kFull means
// that it belongs to a lease of whole slabs.
constexpr bool IsInView(SlabWord word) {
  return word.engine != 0 && (word.state == SlabState::kPartial ||
                              word.state == SlabState::kReturning);
}

struct SlabEntry {
  std::atomic<uint64_t> word;      // SlabWord, packed
  std::atomic<uint64_t> since_ns;  // CLOCK_MONOTONIC of the last change
  // Generation of the slab's memory: incremented when an absent slab gets
  // granules, before its word says so. A process that maps the slab's former
  // granules must map the new ones before it uses a lease.
  std::atomic<uint64_t> memory;
  // LeaseAsker, packed, of a lease of whole slabs until its granules are asked
  // for; written before the word. Valid only while it names the word's lease.
  // SlabUse, packed, for a slab in a view beside engines that span GPUs.
  std::atomic<uint64_t> asker;
};
static_assert(sizeof(SlabEntry) == 32);

// How an engine maps the pool (design note 0000, Memory).
enum class ViewMode : uint32_t {
  kNone = 0,     // no view: whole slabs, or nothing
  kView = 1,     // all slabs, from activation on
  kGuarded = 2,  // leased slabs; the engine's own scratch elsewhere
  kStrict = 3,   // leased slabs; nothing elsewhere (for debugging)
};

enum class ViewState : uint32_t {
  kNone = 0,
  kRegistered = 1,  // its format is accepted; no lease yet
  kActive = 2,      // slabs are leased to it
  kSuspended = 3,   // its engine sleeps: no lease, and no claim to its floor
};

// An engine's view of the pool: slabs cut into blocks of one format. Slab s is
// at view index s + 1 (design note 0000, Memory). All zero: no view. Counts are
// in slabs.
struct ViewRecord {
  ViewMode mode;
  ViewState state;
  uint32_t pid;  // the member that registered it
  uint32_t planes;
  uint64_t page_bytes;
  uint32_t block_tokens;
  uint32_t granules_per_plane;
  uint32_t slabs;   // view indices 1 … slabs exist in the engine's tensors
  uint32_t floor;   // leased at all times while active
  uint32_t cap;     // never more
  uint32_t target;  // what the policy grants now
  uint32_t wanted;  // as the engine says
  uint32_t leased;  // including those being returned
  uint32_t returning;
  // For an engine that spans GPUs: the slabs that the policy would grant if it
  // wanted its cap. The engine wants at most the smallest offer among its GPUs.
  uint32_t offer;
  uint32_t runs_pool;  // the member that runs the block pool; 0: none yet
  uint32_t flags;      // ViewRequest::flags
  KvShape shape;
};
static_assert(sizeof(ViewRecord) == 136);

// The payload of an EngineEntry: what a reader copies between two reads of
// `sequence`. It consists of words, so that atomic loads can copy it.
struct EngineRecord {
  uint32_t id;  // never reused within an epoch
  EngineState state;
  uint32_t uid;
  uint32_t member_count;  // ≤ kMemberCapacity; living members
  uint64_t slabs_held;
  uint64_t since_ns;  // CLOCK_MONOTONIC of the last change of state
  uint32_t member_pids[kMemberCapacity];
  // Start time of each member (ProcessStart), because another process may get
  // its pid. If there is room, the program that each member runs (ProcessImage)
  // is stored from the end backwards, since the member may run another program
  // when the next daemon looks. 0: not known.
  uint64_t member_starts[kMemberCapacity];
  // Members that have exited but whose work may still run in the driver. If it
  // is more than kMemberCapacity, not all of them are listed here.
  uint32_t exited_count;
  uint32_t exited_pids[kMemberCapacity];
  // Limit on the engine's slabs, set by its operator (fsctl limit). 0: no
  // limit; daemons without this field also write 0.
  uint32_t limit;
  char name[kNameBytes];  // NUL-terminated
  ViewRecord view;
};
static_assert(sizeof(EngineRecord) % 8 == 0);

struct EngineEntry {
  std::atomic<uint32_t> sequence;  // of the record that counts
  std::atomic<uint32_t> changes;   // see "Waiting" above
  // The record of sequence n is number n % 2.
  std::atomic<uint64_t> records[2][sizeof(EngineRecord) / 8];
  // Lets an engine that spans GPUs learn this from each of them: the blocks
  // here that admission could count on for it, plus one, at present and while
  // it runs nothing. 0: not known; daemons without these fields write 0.
  std::atomic<uint64_t> sure_blocks;
  std::atomic<uint64_t> first_blocks;
  uint64_t reserved[125 - 2 * sizeof(EngineRecord) / 8];
};
static_assert(sizeof(EngineEntry) == 1024);

// The daemon's counts since it started. Relaxed counters: each is exact, but
// they are not a consistent snapshot.
struct TableCounters {
  std::atomic<uint64_t> leases_granted;
  std::atomic<uint64_t> leases_denied;
  std::atomic<uint64_t> slabs_zeroed;
  std::atomic<uint64_t> bytes_zeroed;
  std::atomic<uint64_t> slabs_quarantined;
  std::atomic<uint64_t> engines_died;  // whose last member left slabs behind
  std::atomic<uint64_t> messages_dropped;     // malformed, or not from a member
  std::atomic<uint64_t> connections_refused;  // stranger, version, capacity
  std::atomic<uint64_t> slabs_asked_back;
  std::atomic<uint64_t> slabs_returned;   // by views, asked back or not
  std::atomic<uint64_t> slabs_added;      // the pool grew
  std::atomic<uint64_t> slabs_withdrawn;  // the pool shrank
  // Lists of GPU processes that could end no quarantine, because the driver
  // refused them or they did not contain the daemon.
  std::atomic<uint64_t> process_lists_useless;
  // A maximum, not a count: the longest time that one event has kept the
  // daemon's thread from answering. That thread makes no driver calls.
  std::atomic<uint64_t> loop_longest_turn_us;
  uint64_t reserved[50];
};
static_assert(sizeof(TableCounters) == 512);

// Bits of TableHeader::flags.
inline constexpr uint32_t kTableEmulatedDevice = 1;
// The pool is kept for the next daemon (design note 0029), unless its keeper
// has ended since.
inline constexpr uint32_t kTableIsKept = 2;

struct TableHeader {
  char magic[8];
  uint32_t abi_version;
  uint32_t flags;
  uint64_t table_bytes;
  uint64_t epoch;       // random, new for each pool; never 0
  uint32_t daemon_pid;  // in the pid namespace that daemon and engines share
  uint32_t engine_capacity;
  uint32_t engines_offset;  // bytes from the table's start
  uint32_t slabs_offset;
  uint64_t granule_bytes;
  uint32_t granules_per_slab;
  uint32_t slab_count;
  uint64_t started_ns;  // CLOCK_REALTIME
  uint8_t gpu_uuid[16];
  char gpu_name[kNameBytes];
  // For the next daemon: the last engine and lease numbers, written before they
  // are used; and the number of slabs that the pool should have.
  std::atomic<uint32_t> last_engine;
  std::atomic<uint32_t> last_lease;
  std::atomic<uint32_t> wanted_slabs;
  std::atomic<uint32_t> daemons;  // that have served this pool
  // If not 0, the pool shrinks for processes that ask for room
  // (lease_messages.h).
  std::atomic<uint32_t> gives_room;
  uint32_t padding;
  // CLOCK_MONOTONIC. If not 0, the program that kept the pool for the next
  // daemon (kTableIsKept) ended then.
  std::atomic<uint64_t> keeper_lost_ns;
  // CLOCK_MONOTONIC. If not 0, no slab has been free since then, and views want
  // more.
  std::atomic<uint64_t> exhausted_ns;
  uint8_t reserved[3392];
  TableCounters counters;
};
static_assert(sizeof(TableHeader) == 4096);
static_assert(offsetof(TableHeader, counters) == 3584);
static_assert(offsetof(TableHeader, gpu_uuid) == 72);

constexpr size_t TableBytes(uint32_t slab_count) {
  return sizeof(TableHeader) + kEngineCapacity * sizeof(EngineEntry) +
         slab_count * sizeof(SlabEntry);
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_SLAB_TABLE_H_
