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
#include "daemon/slab/ids.h"

namespace fineserve::slab {

// Where the manager's changes go: the shared slab table, or a test's record.
class SlabObserver {
 public:
  virtual ~SlabObserver() = default;
  virtual void OnSlabChange(SlabId slab, abi::SlabWord word) = 0;
};

// Who holds which slab of one pool: the truth, of which the slab table is the
// published copy. Pure bookkeeping, no driver call; confined to one thread.
//
// A slab's life, and who moves it:
//
//   FREE ─── Lease ───► FULL ─────────────────── Return ──► ZEROING
//   FREE ── LeaseForView ──► PARTIAL ───────── ReturnSlab ──► ZEROING
//                  PARTIAL ── AskBack ──► RETURNING ─ ReturnSlab ──► ZEROING
//   FULL, PARTIAL, RETURNING ── Quarantine ──► QUARANTINED
//                                  QUARANTINED ── Release ──► ZEROING
//   ZEROING ── Zeroed ──► FREE
//   FREE ── Withdraw ──► ABSENT ── Add ──► ZEROING
//
// A lease of whole slabs (Lease) ends as a whole; a view holds a lease for
// each of its slabs (design note 0000, Memory).
//
// Invariants (CheckInvariants):
//   * every slab is in exactly one of: absent, free, zeroing, held by one
//     lease;
//   * a lease's slabs name that lease and its engine, and no others do;
//   * a slab reaches FREE only from ZEROING: whoever gets it next finds zeros;
//   * nobody waits for what could be granted now.
class SlabManager {
 public:
  // A lease that has been granted. `slabs` in mapping order.
  struct Grant {
    LeaseId lease;
    EngineId engine;
    uint64_t ticket;  // the request's
    std::vector<SlabId> slabs;
  };
  // The request waits for slabs that are about to be free.
  struct Waiting {};
  // The pool has not enough slabs that are free or about to be.
  struct Exhausted {
    uint32_t available;
  };
  using Outcome = absl::variant<Grant, Waiting, Exhausted>;

  // What an engine holds, quarantined slabs included.
  struct Holding {
    uint32_t slabs = 0;
    uint32_t in_view = 0;    // of these: leased to its view
    uint32_t returning = 0;  // of these: asked back
  };

  // The first `present` slabs start in ZEROING: the caller begins their first
  // fill; the others are ABSENT. The observer must outlive the manager; it
  // hears of that too.
  SlabManager(uint32_t slab_count, uint32_t present, SlabObserver* observer);
  SlabManager(uint32_t slab_count, SlabObserver* observer)
      : SlabManager(slab_count, slab_count, observer) {}
  SlabManager(const SlabManager&) = delete;
  SlabManager& operator=(const SlabManager&) = delete;

  // Asks for `count` ≥ 1 slabs. First come, first served: nobody overtakes a
  // waiting request. It waits for slabs that are being zeroed, and for up to
  // `reclaimable` others that the caller will have back. `ticket` is the
  // caller's name for the request and comes back in its grant.
  Outcome Lease(EngineId engine, uint32_t count, uint64_t ticket,
                uint32_t reclaimable = 0);

  // Drops a waiting request; false if none has this ticket. Others may have
  // become grantable: see TakeGrants.
  bool Cancel(uint64_t ticket);

  // Gives a lease back. The slabs that now must be zeroed, in order.
  // NotFound if `engine` has no such lease.
  absl::StatusOr<std::vector<SlabId>> Return(EngineId engine, LeaseId lease);

  // Leases the highest free slab below `below` to a view: the low ones are left
  // to views that have no others. Nothing if there is none or a request waits.
  absl::optional<SlabId> LeaseForView(EngineId engine, SlabId below);

  // A view shall give `slab` back. False unless it is PARTIAL.
  bool AskBack(SlabId slab);

  // A view ends its lease of one slab, which now must be zeroed. NotFound if
  // the engine does not hold `slab` by this lease.
  absl::Status ReturnSlab(EngineId engine, SlabId slab, LeaseId lease);

  // Memory for `slab` is there: it must be zeroed first. False unless ABSENT.
  bool Add(SlabId slab);
  // Nothing will be leased there any more. False unless it is FREE and no
  // waiting request needs it.
  bool Withdraw(SlabId slab);

  // The zero fill of `slab` has completed: it is FREE. Returns the waiting
  // requests that this satisfies. `slab` must be in ZEROING.
  std::vector<Grant> Zeroed(SlabId slab);

  // The engine died: its waiting requests are dropped, its slabs stay its own
  // and become QUARANTINED. Returns how many those are. Dropping a request may
  // unblock others: see TakeGrants.
  uint32_t Quarantine(EngineId engine);

  // Nothing of a dead engine runs any more: its slabs go to ZEROING. Returns
  // them.
  std::vector<SlabId> Release(EngineId engine);

  // Requests that became grantable without a Zeroed (after Quarantine).
  std::vector<Grant> TakeGrants();

  uint32_t free_count() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t zeroing_count() const { return zeroing_count_; }
  uint32_t slab_count() const { return static_cast<uint32_t>(slabs_.size()); }
  uint32_t absent_count() const { return absent_count_; }
  // Slabs that waiting requests want.
  uint32_t promised_count() const { return promised_; }
  abi::SlabWord word(SlabId slab) const { return slabs_[Number(slab)]; }
  // The slabs of an engine's view, those asked back included, with their
  // leases.
  std::vector<std::pair<SlabId, LeaseId>> InView(EngineId engine) const;
  // By engine; those that hold nothing are left out.
  const std::map<EngineId, Holding>& Holdings() const { return holdings_; }
  Holding HeldBy(EngineId engine) const;
  // The slabs of a lease in mapping order; null if `engine` has no such lease.
  const std::vector<SlabId>* Find(EngineId engine, LeaseId lease) const;

  // Aborts, naming what is wrong, if an invariant above does not hold.
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

  SlabObserver* const observer_;
  std::vector<abi::SlabWord> slabs_;
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
