#ifndef SHIM_RANKS_RANK_H_
#define SHIM_RANKS_RANK_H_

#include <atomic>
#include <cstdint>

#include "daemon/contract/abi/slab_table.h"
#include "shim/classify/classify.h"
#include "shim/classify/rule_matcher.h"
#include "shim/fineserve_kv.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/ranks/group_leases.h"
#include "shim/view/view_leases.h"

namespace fineserve::shim {

// One GPU of an engine that spans several, seen from the process that runs its
// block pool: the connection to that GPU's daemon, the leases of the engine's
// view there, and what is sent about them.
//
// Join waits for the daemon; nothing else does. If the daemon dies the leases
// stay as the table last had them. Confined to one thread at a time, except for
// Rejoin. Constant-initialised, trivially destroyed.
class Rank {
 public:
  constexpr Rank() = default;

  // Joins the daemon and takes over the block pool of the view. Returns FS_OK,
  // or an FS_… error with its text set.
  int Join(const fs_kv_rank& rank);
  void AbandonInChild() { link_.AbandonInChild(); }

  // Forgets the leases, because the rank's view is about to be suspended.
  // Resume takes them over again, as Join does, once the view is active.
  void Suspend();
  int Resume();

  const abi::RunPoolAnswer& answer() const { return run_.answer; }
  uint32_t engine() const { return run_.engine_id; }
  ViewLeases& leases() { return leases_; }
  const ViewLeases& leases() const { return leases_; }
  bool joined() const { return link_.IsJoinedTo(run_.epoch); }

  // Reads the daemon's figures about its engines.
  void LookAtPool() { sight_.Look(run_.table); }
  const PoolSight& sight() const { return sight_; }
  // Shows, among other things, what the rank has mapped.
  const ViewScoreboardWriter& shown() const { return shown_; }

  void ShowUsed(uint32_t v, uint32_t blocks) { shown_.ShowUsed(v, blocks); }
  void ShowWished(uint32_t v, bool wished) { shown_.ShowWished(v, wished); }
  uint64_t SumUsed() const { return shown_.SumUsed(); }
  uint32_t Used(uint32_t v) const { return shown_.Used(v); }
  void Show(const ViewGauges& gauges) { shown_.Show(gauges); }

  // Sends the returns that are due. Those that cannot be sent now are kept for
  // the next call.
  void SendReturns();
  // Sends the number of wanted slabs, if it has changed or `again` is true.
  void SendWant(uint32_t slabs, bool again);
  uint64_t returned_slabs() const { return returned_slabs_; }

  // Looks for a daemon that was lost; may wait for it.
  void Rejoin();

 private:
  int TakePool();

  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
  PoolRun run_;
  ViewLeases leases_;
  PoolSight sight_;
  ViewScoreboardWriter shown_;
  uint32_t want_sent_ = UINT32_MAX;
  std::atomic<uint32_t> connection_{0};  // on which the daemon knows us
  uint32_t connection_sent_on_ = 0;
  uint64_t returned_slabs_ = 0;
  uint32_t pid_ = 0;
};

}  // namespace fineserve::shim

#endif  // SHIM_RANKS_RANK_H_
