#ifndef DAEMON_POOL_SLAB_MANAGER_H_
#define DAEMON_POOL_SLAB_MANAGER_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/pool/slab_ids.h"

namespace fineserve::slab {

// A slab has got this word.
struct SlabChange {
  SlabId slab;
  abi::SlabWord word;
  // To be published before the word. If the word is unchanged and this is all
  // zero, the lease counts as seen from now on.
  abi::LeaseAsker asker = {};
};

// The request that a lease of whole slabs answers.
struct Asker {
  pid_t pid = 0;
  uint32_t request = 0;  // 0: it had no number

  bool operator==(const Asker&) const = default;
};

// Records which engine holds which slab of one pool. The slab table is the
// published copy of this. Pure bookkeeping: no system call, no clock; copyable.
//
// The life of a slab, and the call that causes each change:
//
//   FREE      ── TakeGrants ──► FULL
//   FREE      ── LeaseForView ──► PARTIAL
//   PARTIAL   ── AskBack ──► RETURNING
//   FULL      ── Return ──► ZEROING
//   PARTIAL, RETURNING ── ReturnSlab ──► ZEROING
//   FULL, PARTIAL, RETURNING ── Quarantine ──► QUARANTINED
//   QUARANTINED ── Release ──► ZEROING
//   ZEROING   ── Zeroed ──► FREE
//   FREE      ── Withdraw ──► ABSENT
//   ZEROING   ── Discard ──► ABSENT
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
// A lease of whole slabs is unseen until its holder is known to have learned of
// it: its granules are asked for. Before that no process can have mapped it.
// Its holder may ask for it again, by the number of its request, or give it up.
//
// Invariants (CheckInvariants): a slab's word names a lease and its engine if
// and only if it is held by one; the slabs in FREE, Holdings, SlabsHeldBy and
// the counters agree with the words. Moreover a slab becomes FREE only out of
// ZEROING, so that its next engine finds zeros.
class SlabManager {
 public:
  // A lease of whole slabs that has been granted; `slabs` in mapping order.
  struct Grant {
    LeaseId lease;
    EngineId engine;
    uint64_t ticket;  // the request's
    std::vector<SlabId> slabs;
  };
  // A waiting request for whole slabs.
  struct Request {
    EngineId engine;
    uint32_t count;
    uint64_t ticket;
    uint64_t since_ns;
    Asker asker = {};
  };

  // The engine and the process of an unseen lease.
  struct Holder {
    EngineId engine;
    Asker asker;
  };

  // An engine's slabs, including quarantined ones.
  struct Holding {
    uint32_t slabs = 0;
    uint32_t in_view = 0;    // of these: leased to its view
    uint32_t returning = 0;  // of the slabs in the view: asked back

    bool operator==(const Holding&) const = default;
  };

  // The first `present` slabs start in ZEROING, and the caller begins their
  // first fill; the others are ABSENT.
  SlabManager(uint32_t slab_count, uint32_t present);

  // Takes over the slabs of a manager that has ended, as their words were
  // published (TakeChanges); leases are numbered from `last_lease` on. A slab
  // that was in ZEROING still is, and the caller must zero it again. `askers`
  // are the published askers, by slab.
  SlabManager(const std::vector<abi::SlabWord>& words,
              const std::vector<abi::LeaseAsker>& askers, uint32_t last_lease);

  // Returns every change of a slab's word since the last call, in order.
  std::vector<SlabChange> TakeChanges() { return std::exchange(changes_, {}); }

  // Makes a request for at least one whole slab wait until TakeGrants can grant
  // it, if it and the requests before it need at most `obtainable` slabs, which
  // the caller has or will get back for such requests. Otherwise changes
  // nothing, and returns how many of these slabs are left.
  absl::optional<uint32_t> Lease(const Request& request, uint32_t obtainable);

  // Grants the waiting requests that can be granted, in order of arrival. To be
  // called after Lease, Zeroed, Cancel and Quarantine.
  std::vector<Grant> TakeGrants();

  // Returns the unseen lease that answers this request, without its ticket. The
  // lease may have fewer slabs than were asked for, if a daemon died while
  // publishing it.
  absl::optional<Grant> FindUnseen(EngineId engine, const Asker& asker) const;
  // Returns the unseen leases of a process.
  std::vector<LeaseId> UnseenOf(EngineId engine, pid_t pid) const;
  std::map<LeaseId, Holder> Unseen() const { return unseen_; }
  void Seen(EngineId engine, LeaseId lease);

  // Drops a waiting request; false if none has this ticket.
  bool Cancel(uint64_t ticket);
  // Drops the requests that have waited for `wait_ns` or longer, and returns
  // them.
  std::vector<Request> TakeLate(uint64_t now_ns, uint64_t wait_ns);
  // Drops, and returns, the waiting requests of `engine` that do not fit into
  // `most` slabs together with its own requests before them.
  std::vector<Request> TakeBeyond(EngineId engine, uint32_t most);

  // Ends a lease of whole slabs and returns them: the caller must now zero
  // them. NotFound if `engine` has no such lease, or is dead.
  absl::StatusOr<std::vector<SlabId>> Return(EngineId engine, LeaseId lease);

  // Leases the highest free slab below `below` to a view, which leaves the low
  // slabs to views with shorter tensors. Returns nothing if there is no such
  // slab, or if a request waits.
  absl::optional<SlabId> LeaseForView(EngineId engine, SlabId below);

  // Leases that slab to a view. False unless it is FREE and no request waits.
  bool LeaseSlabForView(EngineId engine, SlabId slab);

  // Asks a view to return `slab`. False unless it is PARTIAL.
  bool AskBack(SlabId slab);

  // Ends a view's lease of one slab; the caller must now zero it. NotFound if
  // the engine does not hold `slab` in a view by this lease.
  absl::Status ReturnSlab(EngineId engine, SlabId slab, LeaseId lease);

  // Records that `slab` has memory now; the caller must zero it. False unless
  // ABSENT.
  bool Add(SlabId slab);
  // Takes `slab` out of the pool. False unless it is FREE and no waiting
  // request needs it.
  bool Withdraw(SlabId slab);

  // Takes `slab`, which must be in ZEROING and without a fill, out of the pool,
  // because its memory is bad.
  void Discard(SlabId slab);

  // Records that the zero fill of `slab`, which must be in ZEROING, has
  // completed.
  void Zeroed(SlabId slab);

  // Records that the engine died: drops its waiting requests, and makes its
  // slabs QUARANTINED; they still belong to it. Returns their number.
  uint32_t Quarantine(EngineId engine);

  // Gives all slabs in ZEROING to a dead engine, because the process that
  // should have zeroed them may still write them.
  void QuarantineZeroing(EngineId engine);

  // Ends a quarantine, because all work of the dead engine has ended. Returns
  // its slabs, which are now in ZEROING: the caller must zero them.
  std::vector<SlabId> Release(EngineId engine);

  uint32_t count(abi::SlabState state) const {
    return counts_[static_cast<size_t>(state)];
  }
  uint32_t free_count() const { return count(abi::SlabState::kFree); }
  uint32_t zeroing_count() const { return count(abi::SlabState::kZeroing); }
  uint32_t absent_count() const { return count(abi::SlabState::kAbsent); }
  uint32_t last_lease() const { return last_lease_; }
  uint32_t slab_count() const { return static_cast<uint32_t>(slabs_.size()); }
  // Returns the number of slabs that all waiting requests ask for.
  uint32_t promised_count() const;
  // Returns the number of slabs that one engine's waiting requests ask for.
  uint32_t PromisedTo(EngineId engine) const;
  abi::SlabWord word(SlabId slab) const { return slabs_[Number(slab)]; }
  // Returns the slabs of an engine's view, including those asked back, with
  // their leases.
  std::vector<std::pair<SlabId, LeaseId>> InView(EngineId engine) const;
  // Returns all slabs of an engine, lowest first. Valid until the next change.
  const std::vector<SlabId>& SlabsHeldBy(EngineId engine) const;
  // Returns the holdings of each engine; engines that hold nothing are left
  // out.
  const std::map<EngineId, Holding>& Holdings() const { return holdings_; }
  Holding HeldBy(EngineId engine) const;
  // Returns the slabs of a lease in mapping order; none if `engine` has no such
  // lease.
  std::vector<SlabId> SlabsOf(EngineId engine, LeaseId lease) const;

  // Aborts, and says why, if an invariant above does not hold.
  void CheckInvariants() const;

 private:
  void Set(SlabId slab, abi::SlabWord word, const Asker& asker = {});
  void CountHolding(abi::SlabWord word, int by);
  void ChangeHolder(SlabId slab, uint32_t before, uint32_t after);
  Grant LeaseNow(const Request& request);

  std::vector<abi::SlabWord> slabs_;
  std::vector<SlabChange> changes_;
  std::map<EngineId, Holding> holdings_;
  // The result of SlabsHeldBy for each engine, so that reading an engine's
  // slabs need not scan all slabs.
  std::map<EngineId, std::vector<SlabId>> held_;
  std::array<uint32_t, abi::kSlabStateCount> counts_ = {};
  std::set<SlabId> free_;  // lowest first: leases come out contiguous
  std::deque<Request> waiting_;
  std::map<LeaseId, Holder> unseen_;
  uint32_t last_lease_ = 0;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_SLAB_MANAGER_H_
