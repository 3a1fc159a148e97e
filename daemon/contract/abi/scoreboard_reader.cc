#include "daemon/contract/abi/scoreboard_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/header_copy.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/version.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::abi {
namespace {

// A private copy of the scoreboard's bytes. The atomics of ScoreboardHeader and
// Decision have the layout of plain words.
struct ScoreboardCopy {
  ScoreboardHeader header;
  Decision decisions[kDecisionCapacity];
};
static_assert(sizeof(ScoreboardCopy) == kScoreboardBytes);

template <typename... Parts>
absl::Status BadScoreboard(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("engine scoreboard: ", parts...));
}

absl::Status CopyScoreboard(int fd, ScoreboardCopy* to) {
  size_t done = 0;
  while (done < sizeof(*to)) {
    const ssize_t n = pread(fd, reinterpret_cast<char*>(to) + done,
                            sizeof(*to) - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return BadScoreboard(base::WithErrno("read"));
    if (n == 0) return BadScoreboard("the file has only ", done, " bytes");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const ScoreboardHeader& h) {
  if (memcmp(h.magic, kScoreboardMagic, sizeof(kScoreboardMagic)) != 0) {
    return BadScoreboard("it does not begin with the scoreboard magic");
  }
  if (h.abi_version != kAbiVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "engine scoreboard of pid ", h.pid, " has ABI version ", h.abi_version,
        ", this program reads version ", kAbiVersion));
  }
  if (h.scoreboard_bytes != kScoreboardBytes) {
    return BadScoreboard("scoreboard_bytes is ", h.scoreboard_bytes);
  }
  if (h.pid == 0 || h.pid > INT32_MAX) return BadScoreboard("pid is ", h.pid);
  const uint32_t state = h.link_state.load(std::memory_order_relaxed);
  if (state > static_cast<uint32_t>(LinkState::kForked)) {
    return BadScoreboard("link_state is ", state);
  }
  return absl::OkStatus();
}

std::vector<HookUse> CopyHooks(const ScoreboardHeader& h) {
  std::vector<HookUse> hooks;
  for (uint32_t i = 1; i < kHookCount; ++i) {
    HookUse use{static_cast<Hook>(i), {}};
    for (uint32_t path = 0; path < kPathCount; ++path) {
      use.uses[path] = UsesOf(h, i)[path].load(std::memory_order_relaxed);
    }
    const bool used = std::any_of(use.uses.begin(), use.uses.end(),
                                  [](uint32_t n) { return n != 0; });
    if (used) hooks.push_back(use);
  }
  return hooks;
}

ScoreboardSnapshot CopyHeader(const ScoreboardHeader& h) {
  ScoreboardSnapshot to;
  to.pid = h.pid;
  to.epoch = h.epoch;
  to.engine_id = h.engine_id;
  to.link_state =
      static_cast<LinkState>(h.link_state.load(std::memory_order_relaxed));
  to.program = Printable(h.program);
  to.link_message = Printable(h.link_message);
  to.small_allocations = Get(h.small_allocations);
  to.large_allocations = Get(h.large_allocations);
  to.redirected_allocations = Get(h.redirected_allocations);
  to.redirected_bytes = Get(h.redirected_bytes);
  to.denied_allocations = Get(h.denied_allocations);
  to.stacks_captured = Get(h.stacks_captured);
  to.deepbind_stripped = Get(h.deepbind_stripped);
  to.foreign_namespaces = Get(h.foreign_namespaces);
  to.small_bytes = Get(h.small_bytes);
  to.passed_bytes = Get(h.passed_bytes);
  to.room_waits = Get(h.room_waits);
  to.room_wait_ms = Get(h.room_wait_ms);
  to.created_bytes = Get(h.created_bytes);
  to.created_most_bytes = Get(h.created_most_bytes);
  to.resident_bytes = Get(h.resident_bytes);
  to.pinned_bytes = Get(h.pinned_bytes);
  to.lent_bytes = Get(h.lent_bytes);
  to.evicted_bytes = Get(h.evicted_bytes);
  to.frozen_bytes = Get(h.frozen_bytes);
  to.dropped_bytes = Get(h.dropped_bytes);
  to.share_socket = Get(h.share_socket);
  to.lender_pid = h.lender_pid.load(std::memory_order_relaxed);
  to.readers = h.readers.load(std::memory_order_relaxed);
  to.gate_waits = Get(h.gate_waits);
  to.plugin_stage = h.plugin_stage.load(std::memory_order_relaxed);
  to.hooks = CopyHooks(h);
  to.decisions_begun = Get(h.decisions);
  return to;
}

bool InRange(const DecisionRecord& r) {
  const auto between = [](auto value, auto first, auto last) {
    return value >= first && value <= last;
  };
  return r.hook != Hook::kNone && static_cast<uint32_t>(r.hook) < kHookCount &&
         between(r.verdict, Verdict::kPassThrough, Verdict::kKept) &&
         between(r.reason, Reason::kNotKv, Reason::kNoPlugin) &&
         r.frame_count <= kFrameCapacity;
}

DecisionSnapshot CopyDecision(const DecisionRecord& r, uint64_t number) {
  DecisionSnapshot to{number,   r.time_ns, r.address, r.bytes,  r.lease,
                      r.result, r.hook,    r.verdict, r.reason, r.tid,
                      0,        {},        {}};
  to.unnamed_frames = r.unnamed_frames;
  to.rule = Printable(r.rule);
  to.frames.assign(r.frames, r.frames + r.frame_count);
  return to;
}

// Reads one decision. `before`, `copy` and `after` are three readings of one
// place in the ring: the record counts only if the place did not change around
// the middle one.
void ReadDecision(uint32_t place, const Decision& before, const Decision& copy,
                  const Decision& after, ScoreboardSnapshot* to) {
  const uint64_t sequence = Get(before.sequence);
  if (sequence == 0 && Get(after.sequence) == 0) return;  // never used
  if (sequence % 2 != 0 || sequence != Get(after.sequence)) {
    ++to->unfinished;
    return;
  }
  DecisionRecord record;
  memcpy(&record, copy.record, sizeof(record));
  const uint64_t number = sequence / 2 - 1;
  if (number % kDecisionCapacity != place || !InRange(record)) {
    ++to->malformed;
    return;
  }
  to->decisions.push_back(CopyDecision(record, number));
}

template <typename... Parts>
absl::Status BadViewScoreboard(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("view scoreboard: ", parts...));
}

absl::Status Check(const ViewScoreboardHeader& h) {
  if (memcmp(h.magic, kViewScoreboardMagic, sizeof(h.magic)) != 0) {
    return BadViewScoreboard(
        "it does not begin with the view scoreboard magic");
  }
  if (h.abi_version != kAbiVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("view scoreboard has ABI version ", h.abi_version,
                     ", this program reads version ", kAbiVersion));
  }
  if (h.slab_count == 0 || h.slab_count > kMostSlabs) {
    return BadViewScoreboard("slab_count is ", h.slab_count);
  }
  if (h.scoreboard_bytes != ViewScoreboardBytes(h.slab_count)) {
    return BadViewScoreboard("scoreboard_bytes is ", h.scoreboard_bytes,
                             " for ", h.slab_count, " slabs");
  }
  if (h.pid == 0 || h.pid > INT32_MAX) {
    return BadViewScoreboard("pid is ", h.pid);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScoreboardSnapshot> ReadScoreboard(int fd) {
  // Three consecutive copies replace a seqlock's reads: we can access the
  // scoreboard only by system calls, and each ends before the next begins.
  auto copies = std::make_unique<ScoreboardCopy[]>(3);
  for (int i = 0; i < 3; ++i) {
    if (absl::Status s = CopyScoreboard(fd, &copies[i]); !s.ok()) return s;
  }
  const ScoreboardHeader& header = copies[1].header;
  if (absl::Status s = CheckHeader(header); !s.ok()) return s;
  ScoreboardSnapshot snapshot = CopyHeader(header);
  if (snapshot.decisions_begun > kDecisionCapacity) {
    snapshot.overwritten = snapshot.decisions_begun - kDecisionCapacity;
  }
  for (uint32_t i = 0; i < kDecisionCapacity; ++i) {
    ReadDecision(i, copies[0].decisions[i], copies[1].decisions[i],
                 copies[2].decisions[i], &snapshot);
  }
  std::sort(snapshot.decisions.begin(), snapshot.decisions.end(),
            [](const DecisionSnapshot& a, const DecisionSnapshot& b) {
              return a.number < b.number;
            });
  return snapshot;
}

absl::StatusOr<ViewScoreboardSnapshot> ReadViewScoreboard(int fd) {
  HeaderCopy<ViewScoreboardHeader> h;
  if (pread(fd, h.bytes, sizeof(h.bytes), 0) !=
      static_cast<ssize_t>(sizeof(h.bytes))) {
    return BadViewScoreboard("it is shorter than its header");
  }
  if (absl::Status s = Check(*h); !s.ok()) return s;
  ViewScoreboardSnapshot to;
  to.pid = h->pid;
  to.epoch = h->epoch;
  to.engine_id = h->engine_id;
  to.free_blocks = Get(h->free_blocks);
  to.used_blocks = Get(h->used_blocks);
  to.watermark_blocks = Get(h->watermark_blocks);
  to.linked_slabs = Get(h->linked_slabs);
  to.leaving_slabs = Get(h->leaving_slabs);
  to.steps_begun = Get(h->steps_begun);
  to.steps_ended = Get(h->steps_ended);
  to.allocated_blocks = Get(h->allocated_blocks);
  to.freed_blocks = Get(h->freed_blocks);
  to.failed_allocations = Get(h->failed_allocations);
  to.watermark_misses = Get(h->watermark_misses);
  to.returned_slabs = Get(h->returned_slabs);
  to.driver_calls_to_activate = Get(h->driver_calls_to_activate);
  to.driver_calls_serving = Get(h->driver_calls_serving);
  to.swaps = Get(h->swaps);
  to.swaps_ns = Get(h->swaps_ns);
  to.longest_swap_ns = Get(h->longest_swap_ns);
  to.sure_blocks = Get(h->sure_blocks);
  to.first_blocks = Get(h->first_blocks);
  to.most_blocks = Get(h->most_blocks);
  to.used.resize(size_t{h->slab_count} + 1);
  const size_t bytes = to.used.size() * sizeof(to.used[0]);
  if (pread(fd, to.used.data(), bytes, sizeof(h.bytes)) !=
      static_cast<ssize_t>(bytes)) {
    return BadViewScoreboard("it is shorter than its ", h->slab_count,
                             " slabs need");
  }
  return to;
}

// A process may also hold other processes' scoreboards: a daemon those of its
// engines, a forked child its parent's.
absl::StatusOr<ScoreboardSnapshot> FindScoreboard(pid_t pid) {
  absl::Status trouble = absl::NotFoundError("");
  for (const Holder& holder : FindHolders(pid)) {
    if (holder.kind != Holder::Kind::kEngineScoreboard) continue;
    const driver::Descriptor fd(
        open(holder.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) continue;
    absl::StatusOr<ScoreboardSnapshot> scoreboard = ReadScoreboard(fd.get());
    if (!scoreboard.ok()) {
      trouble = scoreboard.status();
    } else if (scoreboard->pid == static_cast<uint32_t>(pid)) {
      return scoreboard;
    }
  }
  return trouble;
}

}  // namespace fineserve::abi
