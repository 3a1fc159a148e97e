#ifndef DAEMON_SLAB_SLAB_MANAGER_H_
#define DAEMON_SLAB_SLAB_MANAGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/variant.h"
#include "daemon/abi/slab_table.h"
#include "daemon/slab/slab_ids.h"

namespace fineserve::slab {

// A slab has got this word.
struct SlabChange {
  SlabId slab;
  abi::SlabWord word;
};

// Which engine holds which slab of one pool. The slab table is the published
// copy of this. Pure bookkeeping: no system call, no clock; copyable.
//
// The life of a slab, and the call that causes each change:
//
//   FREE      ── Lease, Zeroed, TakeGrants ──► FULL
//   FREE      ── LeaseForView ──► PARTIAL
//   PARTIAL   ── AskBack ──► RETURNING
//   FULL      ── Return ──► ZEROING
//   PARTIAL, RETURNING ── ReturnSlab ──► ZEROING
//   FULL, PARTIAL, RETURNING ── Quarantine ──► QUARANTINED
//   QUARANTINED ── Release ──► ZEROING
//   ZEROING   ── Zeroed ──► FREE
//   FREE      ── Withdraw ──► ABSENT
//   ABSENT    ── Add ──► ZEROING
//
// A lease of whole slabs covers all slabs of one request and ends as a whole. A
// view has a lease of its own for each of its slabs, so they come and go one by
// one (design note 0000, Memory).
//
// A request for whole slabs that cannot be granted at once waits in line, in
// order of arrival. Its slabs are promised: no view is leased a slab while a
// request waits.
//
// Invariants (CheckInvariants):
//   * every slab is in exactly one of these: absent, free, being zeroed, held
//     by one lease;
//   * the slabs of a lease name that lease and its engine, and no others do;
//   * Holdings and the counters agree with the slabs;
//   * no request waits that could be granted now.
// Moreover a slab becomes FREE only out of ZEROING, so that its next engine
// finds zeros.
class SlabManager {
 public:
  // A lease of whole slabs that has been granted; `slabs` in mapping order.
  struct Grant {
    LeaseId lease;
    EngineId engine;
    uint64_t ticket;  // the request's
    std::vector<SlabId> slabs;
  };
  // The request waits for slabs that will be free.
  struct Waiting {};
  // Too few slabs are free or will be; nothing was changed.
  struct Exhausted {
    uint32_t available;
  };
  using Outcome = absl::variant<Grant, Waiting, Exhausted>;

  // What an engine holds, quarantined slabs included.
  struct Holding {
    uint32_t slabs = 0;
    uint32_t in_view = 0;    // of these: leased to its view
    uint32_t returning = 0;  // of those in the view: asked back
  };

  // The first `present` slabs start in ZEROING, and the caller begins their
  // first fill; the others are ABSENT.
  SlabManager(uint32_t slab_count, uint32_t present);

  // Every change of a slab's word since the last call, in order.
  std::vector<SlabChange> TakeChanges() { return std::exchange(changes_, {}); }

  // Asks for `count` ≥ 1 whole slabs. Requests are granted in order of arrival.
  // One that finds too few free slabs waits, but only if it and those before it
  // need no more than `obtainable` slabs: what the caller has, or will have
  // back, for such requests. `ticket` is the caller's name for the request; its
  // grant repeats it.
  Outcome Lease(EngineId engine, uint32_t count, uint64_t ticket,
                uint32_t obtainable);

  // Drops a waiting request; false if none has this ticket. This may let
  // requests behind it be granted: see TakeGrants.
  bool Cancel(uint64_t ticket);

  // Ends a lease of whole slabs and returns them: the caller must now zero
  // them. NotFound if `engine` has no such lease, or is dead.
  absl::StatusOr<std::vector<SlabId>> Return(EngineId engine, LeaseId lease);

  // Leases the highest free slab below `below` to a view, which leaves the low
  // ones to views with shorter tensors. Nothing if there is no such slab, or if
  // a request waits.
  absl::optional<SlabId> LeaseForView(EngineId engine, SlabId below);

  // Asks a view to return `slab`. False unless it is PARTIAL.
  bool AskBack(SlabId slab);

  // Ends a view's lease of one slab; the caller must now zero it. NotFound if
  // the engine does not hold `slab` in a view by this lease.
  absl::Status ReturnSlab(EngineId engine, SlabId slab, LeaseId lease);

  // `slab` has memory now, and the caller must zero it. False unless ABSENT.
  bool Add(SlabId slab);
  // Takes `slab` out of the pool. False unless it is FREE and no waiting
  // request needs it.
  bool Withdraw(SlabId slab);

  // The zero fill of `slab`, which must be in ZEROING, has completed. Returns
  // the waiting requests that can be granted because of it.
  std::vector<Grant> Zeroed(SlabId slab);

  // The engine died: its waiting requests are dropped, and its slabs become
  // QUARANTINED but stay its own. Returns their number. Dropping requests may
  // let others be granted: see TakeGrants.
  uint32_t Quarantine(EngineId engine);

  // Nothing of a dead engine runs any more. Returns its slabs, which are in
  // ZEROING now: the caller must zero them.
  std::vector<SlabId> Release(EngineId engine);

  // Grants waiting requests that Cancel or Quarantine have unblocked.
  std::vector<Grant> TakeGrants();

  uint32_t free_count() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t zeroing_count() const { return zeroing_count_; }
  uint32_t slab_count() const { return static_cast<uint32_t>(slabs_.size()); }
  uint32_t absent_count() const { return absent_count_; }
  // The sum of what waiting requests ask for.
  uint32_t promised_count() const { return promised_; }
  abi::SlabWord word(SlabId slab) const { return slabs_[Number(slab)]; }
  // The slabs of an engine's view, including those asked back, with their
  // leases.
  std::vector<std::pair<SlabId, LeaseId>> InView(EngineId engine) const;
  // By engine, without those that hold nothing.
  const std::map<EngineId, Holding>& Holdings() const { return holdings_; }
  Holding HeldBy(EngineId engine) const;
  // The slabs of a lease in mapping order; null if `engine` has no such lease.
  const std::vector<SlabId>* Find(EngineId engine, LeaseId lease) const;

  // Aborts, and says why, if an invariant above does not hold.
  void CheckInvariants() const;

 private:
  struct WholeLease {
    EngineId engine;
    std::vector<SlabId> slabs;
  };
  struct Pending {
    EngineId engine;
    uint32_t count;
    uint64_t ticket;
  };

  void Set(SlabId slab, abi::SlabWord word);
  void CountHolding(abi::SlabWord word, int by);
  Grant LeaseNow(const Pending& request);
  std::vector<SlabId> ZeroAll(const std::vector<SlabId>& slabs);

  std::vector<abi::SlabWord> slabs_;
  std::vector<SlabChange> changes_;
  std::map<EngineId, Holding> holdings_;
  std::set<SlabId> free_;  // lowest first: leases come out contiguous
  std::map<LeaseId, WholeLease> leases_;
  std::deque<Pending> waiting_;
  uint32_t zeroing_count_ = 0;
  uint32_t absent_count_ = 0;
  uint32_t promised_ = 0;  // Σ count over waiting_
  uint32_t last_lease_ = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_SLAB_SLAB_MANAGER_H_
