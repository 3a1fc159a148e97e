#ifndef DAEMON_FINESERVED_SERVER_MOVE_BOOK_H_
#define DAEMON_FINESERVED_SERVER_MOVE_BOOK_H_

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

// Parameters that an engine drops: until it has dropped so many bytes in all,
// or as many as it can.
struct ParameterDrop {
  abi::ShareAddress lender = {};
  uint64_t bytes = 0;
};

// Where the resident memory of each engine is, and moves that are under way
// (design note 0039). Pure: events in, orders and answers out, which the caller
// takes after each event and carries out.
//
// An engine has one mover in each of its processes. A move gives an order to
// each of them, and ends when all have reported. With several processes each
// comes to rest first, and leaves it when none is on its way there any longer:
// what they have open of each other's memory is used by none of them while it
// is copied, and is back before one of them goes on. An eviction is all or
// none: if one process cannot, those that have left are called back before the
// asker gets its refusal, and it does not leave for others for a while, which
// is longer each time. An activation that one process cannot carry out leaves
// that one out, to be asked again; on several GPUs the others leave again, so
// that no two engines wait for each other's memory.
//
// An engine whose parameters are dropped for those of another process (design
// note 0048) is on the GPU. An eviction has it restore them first.
//
// An engine on several GPUs is in the book of each one's daemon, but the first
// rank's alone moves it (abi::Seat). The process that runs its block pool
// leaves before the ranks do, since it alone knows that they have nothing to
// do. The other daemons say that it is needed, or that its room is: then it
// leaves, if it has no requests, and stays away for as long as they say so.
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

  // A mover has come, has carried an order out, or says that its memory is
  // needed, which activates the engine; it waits for the next order.
  void Report(MoverId mover, slab::EngineId engine,
              const abi::MoveReport& report);
  // Its memory is there, and is being filled: its way back takes from now on.
  void Fills(slab::EngineId engine);
  // Brings back what is out, or lets go what is here, unless a move is under
  // way. False if nothing begins. If another daemon moves the engine, its
  // processes ask that one; Leave does so once a second at most.
  bool Need(slab::EngineId engine);
  bool Leave(slab::EngineId engine);
  // An engine of one process gives parameters for the lender's, or gets them
  // back. False if nothing begins.
  bool Drop(slab::EngineId engine, const ParameterDrop& drop);
  bool Restore(slab::EngineId engine);
  // The daemon of another GPU of the engine, which this one moves, needs its
  // room. StayOut keeps it away for kStayOutNs, from when it is; false if it is
  // here and does not leave. Decline answers that it stays.
  bool StayOut(slab::EngineId engine);
  void Decline(MoverId rank);
  static constexpr uint64_t kStayOutNs = 2'000'000'000;
  // This GPU's room is for `engine`: others that are out, and that other
  // daemons move, are to stay there. To be called again and again.
  void KeepOthersOut(slab::EngineId engine);
  // True if the daemon that moves it said so lately when it was asked to leave:
  // it has requests.
  bool HasDeclined(slab::EngineId engine) const;
  // Its process has ended, or its connection.
  void Gone(MoverId mover);
  // `drop`: for kDropped, which only an engine of one process comes to.
  void Ask(AskerId asker, slab::EngineId engine, abi::Place to,
           const ParameterDrop& drop = {});
  // Its move goes on.
  void AskerGone(AskerId asker);

  // In this GPU's memory.
  uint64_t EvictedBytes(slab::EngineId engine) const;
  // On this GPU. Nullopt if it has no memory that can move, could not leave
  // lately, or is moved by another daemon that is away. One that leaves is away
  // already, and one that comes is not there yet.
  absl::optional<evict::Residence> ResidenceOf(slab::EngineId engine) const;
  // Its parameters that are dropped, by its own word.
  admission::EngineKv::Dropped DroppedOf(slab::EngineId engine) const;
  // About how long until it is on the GPU, in µs, if it is asked back now; 0:
  // it is there.
  sched::Micros BackIn(slab::EngineId engine) const;
  // True if one is on its way to the host, or was just asked to leave by
  // another daemon; if one other than `engine` is on its
  // way to the GPU. Not for longer than kBelievedNs: its process may be
  // stopped.
  bool AnyLeaves() const;
  bool AnyOtherComes(slab::EngineId engine) const;
  bool AnyMoves() const { return !moves_.empty(); }
  static constexpr uint64_t kBelievedNs = 60'000'000'000;
  // Counts moves that have ended, but for those that found all there already;
  // of restorations also those that engines begin themselves.
  const metrics::MoveCounts& counts() const { return counts_; }

  std::vector<Order> TakeOrders();
  std::vector<Answer> TakeAnswers();

 private:
  struct Mover {
    slab::EngineId engine;
    abi::MoveReport report;
    uint32_t order = 0;  // that it carries out; 0: it waits
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
  void Fail(slab::EngineId engine, Move* move, const std::string& why);
  void LeaveAgain(slab::EngineId engine, Move* move);
  void Advance(slab::EngineId engine);
  bool SendOrders(slab::EngineId engine, Move* move);
  bool ComesToRest(slab::EngineId engine) const;
  // For its processes that this daemon orders.
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
  // For all GPUs, but for what other daemons order.
  abi::MoveDone SumOf(slab::EngineId engine, abi::Place place) const;
  struct Sizes {
    uint64_t here = 0;         // on this GPU
    uint64_t out = 0;          // of it
    uint64_t longest_out = 0;  // of any one GPU
  };
  Sizes SizesOf(slab::EngineId engine) const;

  // An engine that could not leave is not asked to before then; one of several
  // GPUs that could not come back to all of them comes for no request.
  struct Pause {
    uint64_t length_ns = 0;  // chance takes a part of a wait's
    uint64_t until_ns = 0;
  };
  using Pauses = std::map<slab::EngineId, Pause>;
  bool Lasts(const Pauses& pauses, slab::EngineId engine) const;
  // An engine that another daemon moves, which it was asked to let leave.
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
  // ns for each byte of the last activations: some of them waited for room.
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

#endif  // DAEMON_FINESERVED_SERVER_MOVE_BOOK_H_
