#ifndef DAEMON_FINESERVED_EVICTION_MOVE_BOOK_H_
#define DAEMON_FINESERVED_EVICTION_MOVE_BOOK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/move_messages.h"
#include "daemon/contract/metrics/snapshot.h"
#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/pool/slab_ids.h"
#include "daemon/scheduling/evict/idle_engines.h"

namespace fineserve::server {

// An order to drop parameters until `bytes` are dropped in all, or no further
// ones can be dropped.
struct ParameterDrop {
  abi::ShareAddress lender = {};
  uint64_t bytes = 0;
};

// Where the resident memory of each engine is, and moves that are under way
// (design note 0039). Pure: events in, orders and answers out, which the caller
// takes after each event and carries out.
//
// An engine has one mover in each of its processes. A move gives an order to
// each of them, and ends when all have reported. If there are several, each
// comes to rest first, and goes on once all are at rest. So none uses the
// memory that it has open of another while that is copied, and the memory is
// back before any of them goes on. An eviction is all or none: if one process
// cannot leave, those that have left are called back before the asker gets its
// refusal, and for a while, longer each time, the engine is not asked to leave
// for others. If one process cannot carry out an activation, that one stays
// out, to be asked again; on several GPUs the others leave again, so that no
// two engines wait for each other's memory.
//
// An engine whose parameters are dropped for those of another process (design
// note 0048) is on the GPU. An eviction has it restore them first.
//
// An engine on several GPUs is in the book of each GPU's daemon, but only the
// first rank's daemon moves it (abi::Seat). The process that runs its block
// pool leaves before the ranks, since only that process knows that they have
// nothing to do. The other daemons say that they need the engine, or its room:
// in that case it leaves, if it has no requests, and stays away for as long as
// they say so.
//
// Invariants: a mover has at most one order, and gets one only while it waits;
// each Ask is answered once, unless its asker has gone.
class MoveBook {
 public:
  explicit MoveBook(const Clock* clock) : clock_(clock) {}

  enum class MoverId : uint64_t {};
  enum class AskerId : uint64_t {};

  struct Order {
    MoverId mover;
    uint32_t number;
    abi::Place to;
    ParameterDrop drop = {};  // to kDropped
  };
  struct Answer {
    AskerId asker;
    absl::Status status;      // NotFound: another daemon moves it
    abi::MoveDone done = {};  // if that is OK; without its header
  };

  // A mover has connected, has carried out an order, or says that its memory is
  // needed, which activates the engine. It then waits for the next order.
  void Report(MoverId mover, slab::EngineId engine,
              const abi::MoveReport& report);
  // Records that the engine's memory exists and is being filled: the time of
  // its return counts from now on.
  void Fills(slab::EngineId engine);
  // Need brings the engine's memory back and Leave has it leave, unless a move
  // is under way. False if nothing begins. If another daemon moves the engine,
  // its processes ask that daemon; Leave makes them do so at most once a
  // second.
  bool Need(slab::EngineId engine);
  bool Leave(slab::EngineId engine);
  // Drop has an engine of one process drop parameters and read the lender's;
  // Restore has it get them back. False if nothing begins.
  bool Drop(slab::EngineId engine, const ParameterDrop& drop);
  bool Restore(slab::EngineId engine);
  // For an engine that this daemon moves, when the daemon of another of its
  // GPUs needs the engine's room. StayOut keeps the engine away until
  // kStayOutNs after it has left; false if it is on the GPU and does not leave.
  // Decline answers that it stays.
  bool StayOut(slab::EngineId engine);
  void Decline(MoverId rank);
  static constexpr uint64_t kStayOutNs = 2'000'000'000;
  // Reserves this GPU's room for `engine`: other engines that are out and that
  // other daemons move must stay out. Call it repeatedly.
  void KeepOthersOut(slab::EngineId engine);
  // True if the engine was lately asked to leave, and the daemon that moves it
  // declined because it has requests.
  bool HasDeclined(slab::EngineId engine) const;
  // The mover's process or connection has ended.
  void Gone(MoverId mover);
  // Asks for a move on behalf of an operator. `drop` is for kDropped, which is
  // possible only for an engine of one process.
  void Ask(AskerId asker, slab::EngineId engine, abi::Place to,
           const ParameterDrop& drop = {});
  // The asker has gone; its move goes on.
  void AskerGone(AskerId asker);

  // Returns the bytes that the engine had in this GPU's memory.
  uint64_t EvictedBytes(slab::EngineId engine) const;
  // Returns where the engine's memory of this GPU is. Nullopt if none of that
  // memory can move, if it recently failed to leave, or if the daemon that
  // moves it is away. An engine that is leaving counts as away; an engine that
  // is returning, as not there yet.
  absl::optional<evict::Residence> ResidenceOf(slab::EngineId engine) const;
  // Returns the engine's dropped parameters, as the engine reports them.
  admission::EngineKv::Dropped DroppedOf(slab::EngineId engine) const;
  // Returns the estimated µs until the engine is on the GPU if it is asked back
  // now; 0 if it is there.
  sched::Micros BackIn(slab::EngineId engine) const;
  // AnyLeaves is true if an engine is on its way to the host, or was just asked
  // to leave through another daemon. AnyOtherComes is true if an engine other
  // than `engine` is on its way to the GPU. Each move counts for at most
  // kBelievedNs, since its process may be stopped.
  bool AnyLeaves() const;
  bool AnyOtherComes(slab::EngineId engine) const;
  bool AnyMoves() const { return !moves_.empty(); }
  static constexpr uint64_t kBelievedNs = 60'000'000'000;
  // Counts the moves that have ended, except those that had nothing to move,
  // and also the restorations that engines begin themselves.
  const metrics::MoveCounts& counts() const { return counts_; }

  std::vector<Order> TakeOrders();
  std::vector<Answer> TakeAnswers();

 private:
  struct Mover {
    slab::EngineId engine;
    abi::MoveReport report;
    uint32_t order = 0;  // that it carries out; 0 while it waits
    abi::Place order_to = abi::Place::kGpu;
    bool has_failed = false;  // to come back, in this move
  };
  struct Move {
    std::vector<AskerId> askers;  // none: it began by itself
    abi::Place asked;
    abi::Place to;  // another than `asked` once it is being undone
    uint64_t began_ns = 0;
    uint64_t fill_ns = 0;  // when the first process was filled; 0: none was
    uint64_t bytes = 0;    // that the processes bring back
    uint32_t moved = 0;
    bool is_for_room = false;   // on another GPU: it stays out for a while
    absl::Status trouble = {};  // the first
    ParameterDrop drop = {};
    bool has_ordered = false;
    bool restores = false;  // what was dropped, and is no return from the host
  };

  // Begins a move without an asker; false if one is under way.
  bool Begin(slab::EngineId engine, abi::Place to);
  void Fail(slab::EngineId engine, Move* move, const std::string& why,
            absl::StatusCode code = absl::StatusCode::kFailedPrecondition);
  void LeaveAgain(slab::EngineId engine, Move* move);
  void Advance(slab::EngineId engine);
  bool SendOrders(slab::EngineId engine, Move* move);
  bool ComesToRest(slab::EngineId engine) const;
  // True if `is` holds for at least one of the engine's processes that this
  // daemon orders.
  template <typename Is>
  bool Any(slab::EngineId engine, Is is) const;
  bool IsAway(slab::EngineId engine) const;
  bool IsLed(slab::EngineId engine) const;
  bool LacksRanks(slab::EngineId engine) const;
  bool PassOnNeed(slab::EngineId engine);
  absl::Status MayDrop(slab::EngineId engine) const;
  bool PassOnLeave(slab::EngineId engine);
  bool TellLed(slab::EngineId engine, abi::Place at, abi::Place to);
  void NoteAnswer(slab::EngineId engine, const abi::MoveReport& report);
  bool IsBelievedToLeave(slab::EngineId engine) const;
  template <typename Is>
  void OrderAll(slab::EngineId engine, Move* move, abi::Place to, Is is);
  void Finish(slab::EngineId engine, const Move& move);
  // Returns sums over all GPUs, without the processes that other daemons order.
  abi::MoveDone SumOf(slab::EngineId engine, abi::Place place) const;
  struct Sizes {
    uint64_t here = 0;         // on this GPU
    uint64_t out = 0;          // of it
    uint64_t longest_out = 0;  // of any one GPU
  };
  Sizes SizesOf(slab::EngineId engine) const;

  // Until `until_ns`, an engine that failed to leave is not asked to leave
  // again, and one that failed to come back to all of its GPUs is not brought
  // back for requests.
  struct Pause {
    uint64_t length_ns = 0;  // of a wait, only a random part of it
    uint64_t until_ns = 0;
  };
  using Pauses = std::map<slab::EngineId, Pause>;
  bool Lasts(const Pauses& pauses, slab::EngineId engine) const;
  // True if the engine has not declined to leave, or declined so long ago that
  // it may be asked again if no other engine has enough memory.
  bool MayBeAsked(slab::EngineId engine) const;
  // A request to let an engine leave, sent to the daemon that moves it.
  struct Asked {
    enum Answer { kNone, kLeaves, kStays };
    uint64_t first_ns = 0;  // since its last answer
    uint64_t last_ns = 0;
    Answer answer = kNone;
  };
  void NoteReturn(slab::EngineId engine, bool left_again);
  void NoteEviction(slab::EngineId engine, bool failed);
  void Learn(const Move& move);
  void NoteDrop(slab::EngineId engine, const Move& move);
  sched::Micros TimeOf(uint64_t bytes) const;

  const Clock* const clock_;
  metrics::MoveCounts counts_;
  // Nanoseconds for each byte of the last activations; some of these waited for
  // room.
  std::deque<double> paces_;
  uint32_t last_order_ = 0;
  std::map<MoverId, Mover> movers_;
  std::map<slab::EngineId, Move> moves_;
  Pauses stays_;
  Pauses waits_;
  std::map<slab::EngineId, Asked> asked_;
  std::map<slab::EngineId, std::string> drop_troubles_;
  uint64_t keep_out_next_ns_ = 0;
  std::vector<Order> orders_;
  std::vector<Answer> answers_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_EVICTION_MOVE_BOOK_H_
