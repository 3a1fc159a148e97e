#ifndef DAEMON_CONTRACT_ABI_ENGINE_SCOREBOARD_H_
#define DAEMON_CONTRACT_ABI_ENGINE_SCOREBOARD_H_

// An engine scoreboard, on which the shim in one process reports about itself.
// One memfd named "fineserve-scoreboard". The daemon makes it for a process
// that connects, and seals it against other writers once that process has
// mapped it; without a daemon the shim makes its own, so that `fsctl explain
// PID` works in both cases. The shim alone writes it and may scribble or die at
// any instruction: readers copy, then check (scoreboard_reader.h). Nothing here
// affects another process's memory.
//
// Bytes:
//   0       ScoreboardHeader                         4,096 bytes
//   4,096   Decision[kDecisionCapacity]          256 bytes each
//
// Decisions form a ring: record n is at n % kDecisionCapacity. Record n is
// complete when its sequence is 2n + 2 and being written when it is 2n + 1.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/contract/abi/hooks.h"
#include "daemon/contract/abi/rule.h"
#include "daemon/contract/abi/version.h"

namespace fineserve::abi {

inline constexpr char kScoreboardMagic[8] = {'F', 'S', 'B', 'O',
                                             'A', 'R', 'D', 0};
inline constexpr char kScoreboardMemfdName[] = "fineserve-scoreboard";
inline constexpr uint32_t kDecisionCapacity = 240;
inline constexpr uint32_t kFrameCapacity = 16;
// Rows for hooks in this table; further rows are at the header's end.
inline constexpr uint32_t kFirstHookRows = 48;
inline constexpr uint32_t kHookCapacity = 64;
inline constexpr uint32_t kPathCapacity = 8;
static_assert(kHookCount <= kHookCapacity && kPathCount <= kPathCapacity);

// Outcome of the process's attempt to join a daemon.
enum class LinkState : uint32_t {
  kNotTried = 0,  // no large allocation yet
  kConnected = 1,
  kNoDaemon = 2,  // pass-through
  kRefused = 3,   // pass-through; the daemon said why
  kLost = 4,      // the daemon went away; leased memory stays
  kForked = 5,    // pass-through: a child of a process that had joined
};

enum class Verdict : uint16_t {
  kPassThrough = 1,  // given to the driver as it came
  kRedirected = 2,   // backed by leased slabs
  kDenied = 3,       // KV, but the pool is exhausted: CUDA_ERROR_OUT_OF_MEMORY
  kReleased = 4,     // slabs returned
  kDeferred = 5,     // freed; its slabs are returned when its stream has passed
  kKept = 6,         // could not be freed: still mapped, still leased
};

enum class Reason : uint16_t {
  kNotKv = 1,         // large, but KV by no rule
  kScope = 2,         // inside fs_kv_begin/end
  kDeclaredSize = 3,  // its size is declared as KV
  kNoDaemon = 4,      // KV by rule, but no daemon to lease from
  kRefused = 5,       // KV by rule, but the daemon refused this process
  kPoolExhausted = 6,
  kDriverError = 7,  // a driver call failed while mapping; `result` names it
  kFreed = 8,
  kForkedChild = 9,  // no lease is requested after fork
  // KV by rule, but of a kind that slabs cannot replace: pitched, managed, on
  // the host, or with special properties
  kMemoryKind = 10,
  kCapturing = 11,  // allocated by a stream capture: it belongs to the graph
  kFrames = 12,     // KV by a rule on its native frames; `rule` names it
  kExcluded = 13,   // a rule says that it is not KV
  kOtherGpu = 14,   // KV by rule, on a GPU whose daemon was not joined
  kSlabSize = 15,   // cuMemCreate of part of a granule, or of few per slab
  kTableFull = 16,  // the shim's tables of redirected memory are full
  kShared = 17,     // the program would hand it to another process or device
  kView = 18,       // a KV tensor of the engine's view
  kNoPlugin = 19,   // started for a view, but its plugin is missing
};

// One decision about one call, in the form that the writer fills in.
struct DecisionRecord {
  uint64_t time_ns;  // CLOCK_MONOTONIC
  uint64_t address;  // what the program got (0 if nothing)
  uint64_t bytes;    // what the program asked for
  uint32_t lease;    // 0 if none
  uint32_t result;   // CUresult returned to the program
  Hook hook;         // the function that the program called
  Verdict verdict;
  Reason reason;
  uint16_t frame_count;  // ≤ kFrameCapacity; 0 if the stack was not captured
  uint32_t tid;
  uint16_t unnamed_frames;  // frames whose function has no known name
  uint16_t reserved_half;
  uint64_t frames[kFrameCapacity];  // instruction pointers, innermost first
  char rule[kRuleNameBytes];        // the rule that matched; empty if none did
  uint64_t reserved[5];
};
static_assert(sizeof(DecisionRecord) == 248);

struct Decision {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> record[sizeof(DecisionRecord) / 8];
};
static_assert(sizeof(Decision) == 256);

struct ScoreboardHeader {
  char magic[8];
  uint32_t abi_version;
  uint32_t pid;
  uint64_t scoreboard_bytes;
  uint64_t epoch;      // of the daemon that made it; 0: made by the shim
  uint32_t engine_id;  // 0: none
  std::atomic<uint32_t> link_state;  // LinkState
  std::atomic<uint64_t> decisions;   // records begun so far
  // Allocations too small to be KV. Counted per thread and added here when a
  // thread ends or makes a large one, so this is a lower bound.
  std::atomic<uint64_t> small_allocations;
  std::atomic<uint64_t> large_allocations;
  std::atomic<uint64_t> redirected_allocations;
  std::atomic<uint64_t> redirected_bytes;  // held now, as requested
  std::atomic<uint64_t> denied_allocations;
  std::atomic<uint64_t> stacks_captured;
  char program[64];        // NUL-terminated
  char link_message[256];  // why pass-through; written before link_state
  // Number of times that each hook was handed out or called, by Hook and Path
  // (UsesOf).
  std::atomic<uint32_t> hook_uses[kFirstHookRows][kPathCapacity];
  std::atomic<uint64_t> deepbind_stripped;  // dlopen with RTLD_DEEPBIND
  // Libraries loaded into another namespace (dlmopen), which the hooks do not
  // reach.
  std::atomic<uint64_t> foreign_namespaces;
  // Bytes that the driver allocated through our hooks since the start, without
  // deducting frees: in small allocations (as above), and in large ones.
  std::atomic<uint64_t> small_bytes;
  std::atomic<uint64_t> passed_bytes;
  // Stage that the code replacing the engine's block pool has reached
  // (fs_kv_progress); 0: no such code.
  std::atomic<uint32_t> plugin_stage;
  uint32_t reserved_word;
  // Allocations that waited for device memory of the pool, and the time that
  // they waited.
  std::atomic<uint64_t> room_waits;
  std::atomic<uint64_t> room_wait_ms;
  // Device memory that the process creates and maps itself (cuMemCreate), like
  // the allocators of engines that can sleep: bytes at present and at most so
  // far.
  std::atomic<uint64_t> created_bytes;
  std::atomic<uint64_t> created_most_bytes;
  // Resident allocations (design note 0039), in bytes: on the GPU; the part of
  // resident_bytes that stays because other processes have it open; and in the
  // copy on the host.
  std::atomic<uint64_t> resident_bytes;
  std::atomic<uint64_t> pinned_bytes;
  std::atomic<uint64_t> evicted_bytes;
  std::atomic<uint64_t> gate_waits;  // calls that waited behind the gate
  // The part of pinned_bytes that other processes have open.
  std::atomic<uint64_t> lent_bytes;
  std::atomic<uint32_t> later_hook_uses[kHookCapacity - kFirstHookRows]
                                       [kPathCapacity];
  // Parameters (design note 0048), in bytes: in allocations that hold nothing
  // else; and the part of frozen_bytes whose own memory is dropped in favour of
  // another process's.
  std::atomic<uint64_t> frozen_bytes;
  std::atomic<uint64_t> dropped_bytes;
  // Name of the socket on which this process answers other processes
  // (share_messages.h), as its 8 bytes; 0 if there is none.
  std::atomic<uint64_t> share_socket;
  std::atomic<uint32_t> lender_pid;  // of dropped_bytes; 0: none
  std::atomic<uint32_t> readers;     // processes that read its parameters
  uint8_t reserved[1488];
};
static_assert(sizeof(ScoreboardHeader) == 4096);

// Returns the row of a hook, indexed by Path. hook < kHookCapacity.
template <typename Header>
auto* UsesOf(Header& header, uint32_t hook) {
  return hook < kFirstHookRows ? header.hook_uses[hook]
                               : header.later_hook_uses[hook - kFirstHookRows];
}

inline constexpr size_t kScoreboardBytes =
    sizeof(ScoreboardHeader) + kDecisionCapacity * sizeof(Decision);
static_assert(kScoreboardBytes == 65536);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_ENGINE_SCOREBOARD_H_
