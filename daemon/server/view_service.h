#ifndef DAEMON_SERVER_VIEW_SERVICE_H_
#define DAEMON_SERVER_VIEW_SERVICE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/clock/clock.h"
#include "daemon/server/scoreboard_memfd.h"
#include "daemon/slab/format.h"
#include "daemon/slab/share_policy.h"
#include "daemon/slab/slab_layout.h"
#include "daemon/slab/slab_manager.h"
#include "daemon/slab/table_writer.h"

namespace fineserve::server {

// What an engine asks of its view.
struct ViewSpec {
  abi::ViewMode mode = abi::ViewMode::kNone;
  slab::Format format;
  uint64_t floor_blocks = 0;
  uint64_t cap_blocks = 0;  // 0: no limit
};

// The operator's word on an engine's share of the pool, in bytes.
struct ShareLimits {
  uint64_t floor_bytes = 0;
  uint64_t cap_bytes = 0;  // 0: no limit
};

// The engines that have a view of the pool, and who of them holds how many
// slabs: carries out slab::FairTargets, slab by slab. Confined to the daemon's
// thread.
//
// Who may die where. An engine may die between any two calls: Forget then drops
// its view, and its slabs are the quarantine's. A lease is the engine's from
// the moment its word stands in the table, whether it ever looks or not.
//
// Invariants: a view holds slabs only while active, at most `cap` of them that
// are not being returned, all below view.slabs; floors of all views together
// fit the pool.
class ViewService {
 public:
  // How long a slab that was asked back counts as on its way. A request may
  // hold a block of it for minutes while others of its engine's slabs are
  // empty: after this another one is asked back as well. Heuristic.
  static constexpr uint64_t kPatienceNs = 200'000'000;

  // All must outlive this object.
  ViewService(slab::SlabManager* slabs, slab::TableWriter* table,
              const Clock* clock, const slab::PoolGeometry& geometry,
              uint64_t epoch);

  // Registers a view; no lease comes of it yet. InvalidArgument if slabs do not
  // hold blocks of the format (with the slab size that does),
  // FailedPrecondition if the engine has a view, ResourceExhausted if its floor
  // does not fit beside the others'. `slot`: of the engine in the table.
  absl::Status Register(slab::EngineId engine, pid_t pid, uint32_t slot,
                        const ViewSpec& spec, const ShareLimits& limits);

  // From now on slabs below `slabs` are leased to it. FailedPrecondition
  // unless registered by `pid` and not active; InvalidArgument if so few slabs
  // are less than its floor.
  absl::Status Activate(slab::EngineId engine, pid_t pid, uint32_t slabs,
                        uint32_t wanted);

  // Ignored, with false, unless `pid` has an active view of the engine.
  bool Want(slab::EngineId engine, pid_t pid, uint32_t wanted);

  // Whether `pid` has a view of the engine, active or not.
  bool Has(slab::EngineId engine, pid_t pid) const {
    return Find(engine, pid) != nullptr;
  }
  // Whether `pid` has an active view, so that it may give slabs back.
  bool IsActive(slab::EngineId engine, pid_t pid) const;

  // Whether `pid` may have the memory of `slab`.
  bool MayMap(slab::EngineId engine, pid_t pid, slab::SlabId slab) const;

  // The view is gone; its slabs are the caller's business. Does nothing if
  // there is none.
  void Forget(slab::EngineId engine);

  // Grants and asks back until every view has what it should have now,
  // `reserved` slabs being for others. Returns the engines whose record
  // changed. Cheap if nothing did.
  std::vector<slab::EngineId> Balance(uint32_t reserved);

  // What one active view can be sure of, in slabs of its own format.
  struct Prospect {
    uint32_t slabs = 0;  // it would hold if it wanted all it may have now
    uint32_t cap = 0;
    uint64_t slab_tokens = 0;  // that a slab holds wherever it lies
    uint64_t used_tokens = 0;  // as its engine says
  };
  // Of each active view, if every other one wants what it wants, or what its
  // engine was promised (in tokens), whichever is more.
  std::map<slab::EngineId, Prospect> Prospects(
      const std::map<slab::EngineId, uint64_t>& promised_tokens) const;

  // The floors of all views, in slabs.
  uint32_t Floors() const;

  // Makes every active view look at the table.
  void TellAll();

  // Whether slabs are on their way back, so that Balance must be called again
  // and again.
  bool expecting() const { return !asked_at_ns_.empty(); }

  // Slabs that views hold above their floors, those being returned included:
  // what Balance could get back for others.
  uint32_t Reclaimable() const;

  // What the table says of the engine's view.
  abi::ViewRecord Record(slab::EngineId engine) const;
  // Of a registered view.
  const slab::SlabLayout& Layout(slab::EngineId engine) const;
  int ScoreboardDescriptor(slab::EngineId engine) const;

 private:
  struct View {
    pid_t pid;
    uint32_t slot;
    abi::ViewMode mode;
    abi::ViewState state;
    slab::SlabLayout layout;
    ViewScoreboardMemfd scoreboard;
    uint32_t slabs;
    uint32_t floor;
    uint32_t cap;
    uint32_t wanted;
    uint32_t target;
    bool touched;  // by this round of Balance
  };
  using Views = std::map<slab::EngineId, View>;

  View* Find(slab::EngineId engine, pid_t pid);
  const View* Find(slab::EngineId engine, pid_t pid) const;
  // The active views of one round of Balance and what they claim.
  struct Round {
    std::vector<Views::iterator> views;
    std::vector<slab::Claim> claims;
  };
  void ForgetReturned();
  bool IsLate(slab::SlabId slab) const;
  void Grant(uint32_t reserved, const std::vector<uint32_t>& targets,
             Round* round);
  void AskBack(uint32_t reserved, const std::vector<uint32_t>& targets,
               const Round& round);

  slab::SlabManager* const slabs_;
  slab::TableWriter* const table_;
  const Clock* const clock_;
  const slab::PoolGeometry geometry_;
  const uint64_t epoch_;
  Views views_;
  std::map<slab::SlabId, uint64_t> asked_at_ns_;  // of those being returned
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_VIEW_SERVICE_H_
