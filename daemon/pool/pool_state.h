#ifndef DAEMON_POOL_POOL_STATE_H_
#define DAEMON_POOL_POOL_STATE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/pool/driver_reports.h"
#include "daemon/pool/geometry/slab_layout.h"
#include "daemon/pool/pool_effects.h"
#include "daemon/pool/share_policy.h"
#include "daemon/pool/slab_manager.h"

namespace fineserve::slab {

// All decisions about the memory of one pool: which engines there are, which of
// them holds which slab, gets the next one or is asked for one, and when a dead
// engine's slabs may be used again. A pure machine: events go in by the calls
// below, Effects come out by TakeEffects; it makes no system call and reads no
// clock, so that tests/protocol can try every order of events. Copyable: a copy
// is another world.
//
// Members and deaths. When an engine's last member has exited, its slabs are
// QUARANTINED until the driver lists none of its processes (design note 0000,
// Memory). A view ends with the process that registered it; its slabs stay the
// engine's until the last member has exited.
//
// Sharing. Settle gives each active view a target (FairTargets), leases free
// slabs to views that hold fewer, and asks views that hold more to return some,
// one slab at a time. Slabs that were asked back still count as held until they
// are returned: the view gets no new ones in their place, or two engines would
// pass slabs to and fro forever. While engines want more than there is, those
// that ask go first: a view that has not asked for a while counts only for what
// it uses, so that its slabs without a used block go to those that wait. It
// counts fully again when it asks again or uses more.
//
// Limits. An operator may limit what an engine holds (SetLimit). It is leased
// no slab above its limit, and its view is asked for those that it holds above
// it, even if no engine wants them. A lease of whole slabs is never asked back:
// the engine keeps those that it has. No limit goes below a view's floor.
//
// Engines that span GPUs. Such an engine has a view in each GPU's pool. Since
// its block ids are the same on all GPUs, it can use a slab only after all its
// pools have leased it that slab. So it says which slabs it wishes for, and
// gets no others. Each pool offers it (abi::ViewRecord) the fair target that it
// would have if it wanted its cap, and its want is at most the least of these
// offers. Slabs are asked back for it as for others, among those that it wishes
// for.
//
// One class, in one file for each of its parts: engines and their memory here
// (pool_state.cc), views, sharing, adoption. Each decision reads slabs, engines
// and views together, so a class for each of the three would ask the other two
// at every step. State that needs no other is apart: slabs and leases
// (SlabManager), shares (share_policy.h), the driver's word (driver_reports.h).
//
// Two properties (tests/protocol): no slab has two holders or is leased
// unzeroed; and from every state, with no new wish, grants and ask-backs end.
class PoolState {
 public:
  using Grant = SlabManager::Grant;
  // Number of used blocks of a slab in an engine's view, as the engine reports
  // it.
  using UsedBlocks = std::function<uint32_t(EngineId, SlabId)>;
  // True if an engine that spans GPUs wishes for a slab.
  using Wished = std::function<bool(EngineId, SlabId)>;

  // Pause between two questions to the driver while slabs are quarantined. The
  // first question follows an exit at once.
  static constexpr uint64_t kListNs = ProcessLists::kPauseNs;
  // Time in which a slab that was asked back is expected to be returned. A
  // request may hold a block of the slab for minutes while other slabs of the
  // same engine are empty, so after this time another slab is asked back as
  // well. A newly leased slab may be unused for the same time before it counts
  // as idle. Heuristic: a few steps of an engine.
  static constexpr uint64_t kPatienceNs = 200'000'000;
  // How long a request for whole slabs may wait. Shorter than the shim's
  // timeout (DaemonLink::Timeouts::request_ms).
  static constexpr uint64_t kLeaseWaitNs = 5'000'000'000;
  // An engine that has held nothing for this long is not starting. Heuristic.
  static constexpr uint64_t kStartNs = 600'000'000'000;

  // The first `present` slabs have memory; their first fill is among the first
  // effects.
  PoolState(const PoolGeometry& geometry, uint32_t present);
  // Takes over the pool of a daemon that has ended, as recorded in its slab
  // table (design note 0029). Nothing that an engine holds changes. The former
  // daemon's fills may go on long after its death; their slabs are quarantined
  // until the driver stops listing that daemon (HoldBackFills). DataLoss if the
  // table contradicts itself; then the pool's memory must be left alone.
  static absl::StatusOr<PoolState> Adopt(const abi::TableSnapshot& kept,
                                         uint64_t now_ns);
  // Quarantines the slabs that the former daemon may still fill. To be called
  // once the effects of Adopt are published: a daemon that ends earlier must
  // leave behind which process it waited for. Also ends the leases that no
  // process can know of; this daemon fills their slabs.
  void HoldBackFills();
  // A process for which Exited must be called unless it is known to be alive.
  struct Member {
    pid_t pid;
    uint64_t image;  // ProcessImage
  };
  std::vector<Member> Members() const;
  // Returns the engine's processes; empty if there is no such engine.
  std::vector<pid_t> MembersOf(EngineId engine) const;
  // Limits the engine to `slabs` from now on; 0 removes the limit. The next
  // Settle asks back the slabs that it holds above the limit, and refuses the
  // requests above it. NotFound if there is no such living engine,
  // InvalidArgument if the limit is less than the floor of the engine's view.
  // The limit ends with the engine.
  absl::Status SetLimit(EngineId engine, uint32_t slabs);
  // Records that the living engine reads `bytes` of parameters from another GPU
  // and has freed its own memory for them. If `raises_cap`, its view's cap
  // rises by the same amount. Its own slabs can then make room for what it asks
  // for. The record ends with the engine.
  void SetDropped(EngineId engine, uint64_t bytes, bool raises_cap);
  // Returns all engines, including dead ones with slabs in quarantine.
  std::vector<EngineId> Engines() const;
  // Returns the engines that have a view, in any state.
  std::vector<EngineId> Views() const;
  // Returns the engines that span GPUs and have an active view.
  std::vector<EngineId> Groups() const;

  // --- Engines ---

  // Makes `pid` a member of the engine of this name and user; the first member
  // creates the engine. `image` is the image of the process (ProcessImage),
  // kept for the next daemon. ResourceExhausted if a table is full; the message
  // says which.
  absl::StatusOr<EngineId> Join(const std::string& name, uid_t uid, pid_t pid,
                                uint64_t now_ns, uint64_t image = 0);
  // Returns the living engine of this name and user.
  absl::optional<EngineId> Find(const std::string& name, uid_t uid) const;
  // Records that `pid` has exited. Does nothing if it is not a member.
  void Exited(pid_t pid, uint64_t now_ns);
  // Takes the list of processes that the driver reports on this GPU. `self` is
  // the daemon's own pid. Returns false if the list does not contain it: such a
  // list is empty or from another pid namespace, and says nothing about our
  // engines.
  bool Listed(const std::vector<pid_t>& pids, pid_t self);
  // Returns the dead processes that Listed waits for.
  std::vector<pid_t> AwaitedPids() const;
  // Takes the GPU's count of uncorrectable memory errors, read before the next
  // list. Returns true if it has risen. Then the slabs of dead engines, and of
  // engines that die soon, get other memory when they leave quarantine, since
  // one of these engines has read a bad page, and the next holder would read it
  // too.
  bool HasErred(uint64_t errors, uint64_t now_ns);
  // Returns the GPU's count when it was last read; 0 before.
  uint64_t memory_errors() const { return memory_errors_.count(); }
  // True if the driver may still list a member with this pid that has exited. A
  // new process with the same pid would be mistaken for the member as soon as
  // it has a context.
  bool Awaits(pid_t pid) const;

  // --- Whole slabs ---

  // Asks for `count` ≥ 1 whole slabs; a grant or a refusal names the ticket.
  // The request is refused if it needs slabs that floors, other requests or
  // dead engines need. A numbered request that this daemon or a former one has
  // already granted gets the same lease again, until its holder has seen the
  // lease.
  void Lease(EngineId engine, uint32_t count, uint64_t ticket, uint64_t now_ns,
             const Asker& asker = {});
  // Records that the holder knows its lease, since it asks for the granules. To
  // be published before the granules are sent.
  void Seen(EngineId engine, LeaseId lease);
  // Returns to the pool the lease that was granted for a request whose answer
  // never reached its process. NotFound if there is none.
  absl::Status GiveUp(EngineId engine, const Asker& asker);
  // Cancels the request, because its process has stopped waiting.
  void Cancel(uint64_t ticket) { slabs_.Cancel(ticket); }
  // Ends the lease. NotFound if the engine has no such lease.
  absl::Status Return(EngineId engine, LeaseId lease);

  // --- Views; `pid` is the member that asks ---

  // Registers a view, without leasing anything to it. Replaces a view of `pid`
  // that is not active. InvalidArgument, with a slab size that fits, if the
  // slabs cannot hold blocks of the format; FailedPrecondition if the engine
  // has another view; ResourceExhausted if its floor cannot be kept beside the
  // others' floors and the whole leases; Unavailable if only quarantined slabs
  // prevent that.
  absl::Status RegisterView(EngineId engine, pid_t pid, const ViewSpec& spec,
                            const ShareLimits& limits);
  // Allows slabs below `slabs` to be leased to the view from now on. OK, with
  // nothing changed, if it is already active with the same number.
  // FailedPrecondition unless `pid` has registered it, or if it is active with
  // another number; InvalidArgument if `slabs` is less than its floor.
  absl::Status ActivateView(EngineId engine, pid_t pid, uint32_t slabs,
                            uint32_t wanted, uint64_t now_ns);
  // Lets `pid`, another member, run the block pool of an active view that was
  // registered with ViewSpec::group, and make the calls Want and ReturnSlab.
  // FailedPrecondition if there is no such view, if another process runs the
  // pool, or if a process that ran it has left slabs, since steps of other
  // members may still write them.
  absl::Status RunPool(EngineId engine, pid_t pid);
  // Records that the engine could use `wanted` slabs now. While it finds no
  // free block, it repeats the call, even with the same number. Returns false,
  // and ignores the call, unless `pid` runs the block pool of an active view.
  bool Want(EngineId engine, pid_t pid, uint32_t wanted, uint64_t now_ns);
  // Ends the view's lease of `slab`. NotFound if the view does not hold `slab`
  // by this lease.
  absl::Status ReturnSlab(EngineId engine, pid_t pid, SlabId slab,
                          LeaseId lease);
  // Ends the view and all its leases. NotFound if `pid` has no view.
  absl::Status CloseView(EngineId engine, pid_t pid);
  // Ends all leases of the view, which then claims nothing, not even its floor,
  // until `pid` registers it again. NotFound if `pid` has no view.
  absl::Status SuspendView(EngineId engine, pid_t pid);

  // --- Memory ---

  void Made(SlabId slab);
  // Records that the GPU is full, so the pool stays as large as it is.
  void NotMade(SlabId slab);
  void Zeroed(SlabId slab);
  // Records that the slab's fill could not start. No engine can get the slab
  // until a later Settle asks for another try.
  void NotZeroed(SlabId slab);
  // Sets how many slabs the pool should have. Settle makes the changes step by
  // step while resizing(). InvalidArgument if that is more than the pool can
  // have, or less than floors and whole leases take. Slabs of dead engines
  // delay the change.
  absl::Status Resize(uint32_t slabs);

  // --- Facts by which the pool's size is chosen (AutoSize) ---

  // Returns the number of slabs of floors, whole leases and promises, below
  // which no pool shrinks; slabs of dead engines are not counted. Returns all
  // slabs if other devices know the memory of a view (ViewSpec::registered).
  uint32_t NeededSlabs() const;
  // Returns how many slabs could leave the pool if every engine except `asker`
  // returned all above its floor. `asker` cannot return its own slabs while it
  // waits, unless it has dropped memory: then another of its threads waits.
  uint32_t GivableFor(EngineId asker) const;
  // Returns how many slabs the pool lacks for the floor of such a view.
  uint32_t LackFor(EngineId engine, const ViewSpec& spec,
                   const ShareLimits& limits) const;
  // Returns the same for a lease of `count` whole slabs. Also returns 0 if
  // `asker` already has the lease, or if the engine's limit forbids it.
  uint32_t LackForWhole(EngineId engine, uint32_t count,
                        const Asker& asker) const;
  // True if engines want more slabs than there are, or if almost none are left.
  bool tight() const;
  // Returns how many slabs views want and may have, beyond those that they have
  // and those that are or will soon be free.
  uint32_t LackingSlabs() const;
  // True if no slab is free and some are lacking.
  bool IsExhausted() const;
  // True if an engine has joined that holds nothing yet and has not said what
  // it wants: it may be loading its weights. Such an engine counts for at most
  // kStartNs.
  bool AnyStarting(uint64_t now_ns) const;

  // Shares the pool among the engines. To be called after events, and regularly
  // while restless().
  void Settle(uint64_t now_ns, const UsedBlocks& used,
              const Wished& wished = nullptr);

  Effects TakeEffects();

  // --- Queries ---

  const SlabManager& slabs() const { return slabs_; }
  const PoolCounters& counters() const { return counters_; }
  uint32_t last_engine() const { return last_engine_; }
  const PoolGeometry& geometry() const { return geometry_; }
  uint32_t present_slabs() const {
    return slabs_.slab_count() - slabs_.absent_count();
  }
  // The slabs that have memory.
  std::vector<SlabId> PresentSlabs() const;
  // The size of the pool once it is no longer resizing.
  uint32_t wanted_slabs() const { return wanted_slabs_; }
  bool resizing() const { return wanted_slabs_ != present_slabs(); }
  bool quarantining() const;
  // True if the driver is to be asked for its processes repeatedly.
  bool awaiting() const;
  // True if Settle may have work to do even if no event comes.
  bool restless() const;

  uint32_t SlotOf(EngineId engine) const { return engines_.at(engine).slot; }
  // Returns the engine's name; empty if the engine is gone.
  std::string NameOf(EngineId engine) const;
  abi::EngineRecord Record(EngineId engine) const;
  // Returns, for example, "engine 1 (vllm-a) 40 slabs, engine 2 (vllm-b, dead)
  // 22 slabs".
  std::string DescribeHolders() const;

  // True if `pid` has the engine's view, in any state.
  bool HasView(EngineId engine, pid_t pid) const {
    return FindView(engine, pid) != nullptr;
  }
  bool HasView(EngineId engine) const;
  bool IsSuspended(EngineId engine) const {
    return HasView(engine) &&
           engines_.at(engine).view->state == abi::ViewState::kSuspended;
  }
  // Returns the pool's granules that make up granules [first, first + count) of
  // a lease of whole slabs, in mapping order; fewer if the lease ends earlier.
  // NotFound if the engine has none of them.
  absl::StatusOr<std::vector<uint32_t>> GranulesOf(EngineId engine,
                                                   LeaseId lease,
                                                   uint32_t first,
                                                   uint32_t count) const;
  // Returns granules [first, first + count) of the pool, up to the first that
  // `pid` may not map for its view. NotFound if `pid` may map none of them.
  absl::StatusOr<std::vector<uint32_t>> ViewGranules(EngineId engine, pid_t pid,
                                                     uint32_t first,
                                                     uint32_t count) const;
  // REQUIRES: the engine has a view.
  const SlabLayout& Layout(EngineId engine) const {
    return engines_.at(engine).view->layout;
  }
  const abi::KvShape& Shape(EngineId engine) const {
    return engines_.at(engine).view->shape;
  }
  // Returns the most slabs that the engine's view may hold, given its own cap,
  // what it has dropped and its limit.
  uint32_t CapOf(EngineId engine) const;

  // The slabs that one active view can be sure of, in its own format.
  struct Prospect {
    uint32_t slabs = 0;  // that the view would hold if it wanted its cap
    uint32_t cap = 0;
    uint32_t leased = 0;
    uint64_t slab_tokens = 0;  // that any slab holds, wherever it is
  };
  // Returns the prospect of each active view, assuming that every other view
  // wants the larger of what it says it wants and what its engine was promised
  // (in tokens).
  std::map<EngineId, Prospect> Prospects(
      const std::map<EngineId, uint64_t>& promised_tokens) const;

 private:
  struct View {
    pid_t pid;
    abi::ViewMode mode;
    SlabLayout layout;
    uint32_t slabs;
    uint32_t floor;
    uint32_t cap;
    bool group;
    abi::KvShape shape;
    abi::ViewState state = abi::ViewState::kRegistered;
    pid_t runs_pool = 0;  // of a group; 0: no process
    uint32_t offer = 0;   // of a group
    uint32_t wanted = 0;
    uint32_t target = 0;
    // Limit on the view's claim, set because some of its slabs are unused while
    // other views wait. It holds until the view asks again or uses more blocks
    // than `used_then`.
    uint32_t most = UINT32_MAX;
    uint64_t used_then = 0;
    uint64_t asked_ns = 0;
    uint64_t unmatched_ns = 0;  // it can use none of the free slabs since then
    bool registered = false;    // ViewSpec::registered
  };
  // An engine's statement about the slabs of its view.
  struct Usage {
    uint64_t blocks = 0;  // in use
    uint32_t idle = 0;  // slabs without a used block, except newly leased ones
  };
  struct Engine {
    uint32_t slot;  // in the table
    std::string name;
    uid_t uid;
    std::map<pid_t, uint64_t> members;  // with their image
    std::set<pid_t> exited;             // which the driver may still list
    abi::EngineState state;
    uint64_t since_ns;
    absl::optional<View> view;
    // True if so many members have exited that an earlier daemon could not list
    // them all: nothing can show that their work is over.
    bool has_unknown = false;
    bool has_erred = false;  // its memory may have a bad page
    uint32_t limit = 0;      // slabs; 0: none
    bool has_dropped = false;
    uint32_t above_cap = 0;  // slabs that its view may have besides, by that
  };
  // The active views and their claims, in one round of sharing.
  struct Round {
    std::vector<EngineId> ids;
    std::vector<Claim> claims;
    std::vector<uint32_t> targets;
    uint32_t reserved;  // free slabs that are set aside for other uses
  };

  PoolState(const PoolGeometry& geometry, SlabManager slabs,
            uint32_t wanted_slabs);
  // pool_adoption.cc
  absl::Status Take(const abi::EngineSnapshot& kept, uint64_t now_ns);
  absl::StatusOr<View> TakeView(const abi::ViewRecord& kept,
                                uint64_t now_ns) const;
  void ReturnUnseenWithoutHolder();
  absl::Status AwaitFormerDaemon(pid_t daemon, uint64_t now_ns);

  absl::StatusOr<EngineId> FindOrMake(const std::string& name, uid_t uid,
                                      uint64_t now_ns);
  // REQUIRES: a slot is free.
  EngineId Make(const std::string& name, uid_t uid, uint64_t now_ns);
  View* FindView(EngineId engine, pid_t pid);
  const View* FindView(EngineId engine, pid_t pid) const;
  // Returns the active view whose blocks `pid` hands out.
  View* FindPool(EngineId engine, pid_t pid);
  bool MayMap(const View& view, EngineId engine, SlabId slab) const;
  void EndLeases(EngineId engine);
  void Bury(EngineId id, uint64_t now_ns);
  void Remove(EngineId id);
  void Note(EngineId id, const std::string& text);
  void Fill(const std::vector<SlabId>& slabs);
  void Replace(const std::vector<SlabId>& slabs);
  void Refuse(const SlabManager::Request& request, uint32_t available,
              bool late, uint32_t limit = 0);
  void GrantWaiting();
  bool GrantAgain(EngineId engine, uint32_t count, uint64_t ticket,
                  const Asker& asker);
  uint32_t Uncommitted(uint32_t pool, uint32_t* quarantined,
                       EngineId except = kNoEngine) const;
  absl::StatusOr<View> MakeView(pid_t pid, const ViewSpec& spec,
                                const ShareLimits& limits) const;
  // Returns the slabs left for the floor of a new view of the engine;
  // `quarantined` of them become available later.
  uint32_t LeftForFloors(EngineId engine, uint32_t* quarantined) const;
  absl::Status CheckFloor(EngineId engine, const View& view,
                          uint64_t floor_blocks) const;

  uint32_t WholeRoom(EngineId id) const;
  absl::Status CheckLimit(EngineId id, const View& view) const;
  bool IsRegistered() const;
  void AskBackAboveLimits(const Round& round, uint64_t now_ns,
                          const UsedBlocks& used);

  // pool_sharing.cc
  void Grow();
  void Shrink();
  Round Claims(uint64_t now_ns, const UsedBlocks& used);
  bool IsLate(SlabId slab, uint64_t now_ns) const;
  Usage UsageOf(EngineId engine, uint64_t now_ns, const UsedBlocks& used) const;
  void LimitToUse(Round* round, uint64_t now_ns, const UsedBlocks& used);
  void SetTargets(uint32_t shared, uint32_t late, Round* round);
  void SetOffers(uint32_t shared, const Round& round);
  absl::optional<SlabId> LeaseTo(EngineId id, const Wished& wished);
  void Share(Round* round, uint64_t now_ns, const Wished& wished);
  void AskBack(const Round& round, uint64_t now_ns, const UsedBlocks& used,
               const Wished& wished);
  void AskBack(SlabId slab, uint64_t now_ns);
  std::vector<Need> Needs(const Round& round, const Wished& wished) const;
  bool WishesFor(EngineId engine, SlabId slab, const Wished& wished) const;
  std::vector<bool> WishesOf(EngineId engine, const Wished& wished) const;
  std::vector<uint32_t> Spare(const Round& round, uint64_t now_ns,
                              const std::vector<uint32_t>& returning,
                              const std::vector<uint32_t>& expected) const;
  void Touch(EngineId id);

  PoolGeometry geometry_;
  SlabManager slabs_;
  std::map<EngineId, Engine> engines_;
  std::set<uint32_t> free_slots_;
  uint32_t last_engine_ = 0;
  uint32_t wanted_slabs_;
  std::set<SlabId> making_;
  std::set<SlabId> unfilled_;       // in ZEROING, but no fill is under way
  std::vector<uint64_t> moved_ns_;  // a view's slab: leased or asked back then
  ProcessLists lists_;
  MemoryErrors memory_errors_;
  bool contended_ = false;  // views want more than there is or comes in time
  // An engine that spans GPUs wants more, and has been able to use none of the
  // free slabs for a while: they are not free on its other GPUs.
  bool unmatched_ = false;
  bool expecting_ = false;              // slabs were asked back
  EngineId former_daemon_ = kNoEngine;  // whose fills may still write
  PoolCounters counters_;
  Effects effects_;
};

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_POOL_STATE_H_
