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

// The view that an engine asks for.
struct ViewSpec {
  abi::ViewMode mode = abi::ViewMode::kNone;
  slab::Format format;
  uint64_t floor_blocks = 0;
  uint64_t cap_blocks = 0;  // 0: no limit
};

// An engine's share of the pool as the operator limits it, in bytes.
struct ShareLimits {
  uint64_t floor_bytes = 0;
  uint64_t cap_bytes = 0;  // 0: no limit
};

// The engines that have a view of the pool. Carries out slab::FairTargets: it
// leases slabs to views and asks for them back, one by one. Confined to the
// daemon's thread.
//
// Who may die where. An engine may die between any two calls: Forget then drops
// its view, and its slabs go to quarantine. A lease is the engine's from the
// moment that the table says so, whether or not the engine has read it.
//
// Invariants: a view holds slabs only while it is active, all of them below
// view.slabs, and at most `cap` that are not being returned; the floors of all
// views together fit the pool.
class ViewService {
 public:
  // How long a slab that was asked back is expected to be returned. A request
  // may hold a block of it for minutes while other slabs of the same engine are
  // empty: after this time another slab is asked back as well. Heuristic.
  static constexpr uint64_t kPatienceNs = 200'000'000;

  // All must outlive this object.
  ViewService(slab::SlabManager* slabs, slab::TableWriter* table,
              const Clock* clock, const slab::PoolGeometry& geometry,
              uint64_t epoch);

  // Registers a view, without leasing anything to it. InvalidArgument, with a
  // slab size that fits, if the slabs cannot hold blocks of the format;
  // FailedPrecondition if the engine has a view; ResourceExhausted if its floor
  // does not fit beside the others'. `slot` is the engine's in the table.
  absl::Status Register(slab::EngineId engine, pid_t pid, uint32_t slot,
                        const ViewSpec& spec, const ShareLimits& limits);

  // From now on slabs below `slabs` may be leased to it. FailedPrecondition
  // unless `pid` has registered it and it is not active; InvalidArgument if
  // `slabs` is less than its floor.
  absl::Status Activate(slab::EngineId engine, pid_t pid, uint32_t slabs,
                        uint32_t wanted);

  // Ignored, with a result of false, unless `pid` has an active view.
  bool Want(slab::EngineId engine, pid_t pid, uint32_t wanted);

  // Whether `pid` has the engine's view, active or not.
  bool Has(slab::EngineId engine, pid_t pid) const {
    return Find(engine, pid) != nullptr;
  }
  // Whether `pid` has an active view, so that it may return slabs.
  bool IsActive(slab::EngineId engine, pid_t pid) const;

  // Whether `pid` may map the memory of `slab`.
  bool MayMap(slab::EngineId engine, pid_t pid, slab::SlabId slab) const;

  // Drops the engine's view, if it has one. The caller deals with its slabs.
  void Forget(slab::EngineId engine);

  // Leases slabs and asks for them back so that views reach their targets, with
  // `reserved` slabs set aside for other uses. Returns the engines whose record
  // has changed. Cheap if nothing has.
  std::vector<slab::EngineId> Balance(uint32_t reserved);

  // What one active view can be sure of, in slabs of its own format.
  struct Prospect {
    uint32_t slabs = 0;  // that it would hold if it wanted as many as allowed
    uint32_t cap = 0;
    uint64_t slab_tokens = 0;  // that a slab holds, wherever it lies
    uint64_t used_tokens = 0;  // as its engine reports
  };
  // The prospect of each active view, assuming that every other view wants what
  // it says it wants or what its engine was promised (in tokens), whichever is
  // more.
  std::map<slab::EngineId, Prospect> Prospects(
      const std::map<slab::EngineId, uint64_t>& promised_tokens) const;

  // The sum of all views' floors, in slabs.
  uint32_t Floors() const;

  // Makes every active view read the table.
  void TellAll();

  // Whether slabs have been asked back and not returned, so that Balance must
  // be called regularly.
  bool expecting() const { return !asked_at_ns_.empty(); }

  // Slabs that views hold above their floors, including those being returned:
  // what Balance could get back for other uses.
  uint32_t Reclaimable() const;

  // The engine's view as the table shows it.
  abi::ViewRecord Record(slab::EngineId engine) const;
  // Only of an engine that has a view.
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
