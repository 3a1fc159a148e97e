#ifndef TESTS_PROTOCOL_RANK_WORLD_H_
#define TESTS_PROTOCOL_RANK_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/eviction/move_book.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// Initial state of a world of engines on several GPUs that leave them, and the
// faults that are injected into it.
struct RankOptions {
  // The GPU of each rank of each engine; the first rank's daemon moves the
  // engine.
  std::vector<std::vector<uint32_t>> engines = {{0, 1}};
  uint32_t room = 8;     // ranks whose memory each GPU has room for
  uint32_t crashes = 0;  // of daemons, in all
  uint32_t deaths = 0;   // of processes, in all
  uint32_t drops = 0;    // of connections, in all
  // Daemons let engines leave for others that lack room on their GPU; otherwise
  // an operator does so at the end.
  bool by_need = false;
  // A rank leaves whether or not its block pool has.
  bool ranks_leave_alone = false;
  // The block pool goes on before all ranks have their memory and their views.
  bool pool_goes_on_alone = false;
  // The block pool leaves with a step in flight.
  bool pool_leaves_in_a_step = false;
  // A process that waits for memory that is away asks only once.
  bool rings_once = false;
  // A rank does not pass on that its own daemon needs the rank, or the rank's
  // room.
  bool keeps_needs = false;
  bool keeps_room_needs = false;
  // A daemon that dies takes its GPU's pool along, because no parent keeps the
  // pool.
  bool loses_pools = false;
  // A rank stays in a lost pool when its block pool takes over the rank again.
  bool stays_in_lost_pools = false;
};

// A small FineServe of several GPUs, each with its daemon's own MoveBook, and
// engines on some of them: ranks, each with a mover that obeys the first rank's
// daemon and hands its memory to its own, and a process that runs their block
// pool, with its mover and its thread, which suspends their views one after
// the other. The store's part is MoveWorld's: here a copy is right once it is
// made.
//
// Whenever a step is built, each rank has its view, its memory and an open
// gate, until the step has ended. A mover has at most one order, and each Ask
// one answer. When all has come to rest, each engine that is needed has
// answered, and each one is on one side as a whole, unless a daemon or a
// connection has ended.
class RankWorld : public Choosing<RankWorld> {
 public:
  explicit RankWorld(const RankOptions& options);
  RankWorld(const RankWorld&) = delete;
  RankWorld& operator=(const RankWorld&) = delete;

  // Lets one possible event happen, chosen by a number.
  void Happen(uint32_t random);
  // Lets everything under way finish and nothing new begin. Returns what is
  // wrong afterwards.
  std::string Settle();

  uint64_t left() const { return left_; }  // ranks
  uint64_t returned() const { return returned_; }
  uint64_t steps() const { return steps_; }
  // Number of ranks that left again because another rank had no room.
  uint64_t undone() const { return undone_; }
  // Number of engines that left to make room on a GPU other than their first.
  uint64_t let_go() const { return let_go_; }

 private:
  struct Message {
    enum Kind { kReport, kContents, kFill, kOrder, kCopied, kFilled };
    Kind kind;
    abi::MoveReport report = {};
    uint32_t order = 0;
    abi::Place to = abi::Place::kGpu;
  };
  struct Connection {
    size_t process;
    uint32_t gpu;         // of its daemon
    bool open = true;     // for the process
    bool handled = true;  // by the daemon
    std::deque<Message> up = {}, down = {};
  };
  enum class Doing { kWaits, kAwaitsPool, kCopies, kFills };
  struct Process {
    size_t engine;
    uint32_t gpu;
    abi::Seat seat;
    bool alive = true;
    absl::optional<size_t> orders =
        {};  // its connection to the first rank's daemon
    absl::optional<size_t> store = {};  // to its own GPU's, if that is another
    abi::Place place = abi::Place::kGpu;
    bool gate_open = true;
    bool has_memory = true;
    bool is_away = false;  // its pool has suspended its view
    bool has_view = true;
    Doing doing = Doing::kWaits;
    bool goes_on = false;  // once it is filled, or cannot leave
    bool leaves = false;   // once it rests
    abi::MoveReport report = {};
    bool rung = false;
    bool room_is_needed = false;  // by others on its GPU
    uint32_t pool = 0;            // number of the one that its view is of
  };
  enum class Presence { kHere, kAsked, kAway };
  struct Engine {
    size_t first;  // its ranks' processes; the pool's is the one after them
    size_t ranks;
    Presence presence = Presence::kHere;
    bool runs = true;      // its pool hands out blocks
    bool in_step = false;  // on all of its ranks
    bool requests = false;
    bool has_rung = false;
    size_t suspended = 0;  // ranks that the pool's thread has suspended
    bool suspends = false;
    bool disturbed = false;
  };
  // A daemon's knowledge apart from its book.
  struct Gpu {
    absl::optional<size_t> lacks = {};  // an engine that found no room
    absl::optional<size_t> turn = {};   // for whom others leave
    uint64_t turn_ends_ns = 0;
    uint32_t pool = 0;  // number of the one that it serves
  };

  // The possible events; the argument is an engine, a process, a connection or
  // a GPU.
  void Ask(size_t e);
  void BeginStep(size_t e);
  void EndStep(size_t e);
  void SuspendNext(size_t e);
  void LeavePool(size_t e);
  void RefuseToLeave(size_t e);
  void ComeBack(size_t e);
  void RingPool(size_t e);
  void AskOut(size_t e);
  void AskBack(size_t e);
  void Need(size_t e);
  void NeedElsewhere(size_t e);
  void MakeRoom(size_t gpu);
  void PassOnRoomNeed(size_t p);
  void ReadStore(size_t p);
  void Receive(size_t p);
  void AnswerBell(size_t p);
  void AwaitPool(size_t p);
  void GiveUpPool(size_t p);
  void ConnectOrders(size_t p);
  void ConnectStore(size_t p);
  void GoOnAlone(size_t p);
  void DropOrders(size_t p);
  void DropStore(size_t p);
  void Die(size_t p);
  void EndEngine(size_t e);
  void Deliver(size_t c);
  void Crash(size_t gpu);
  void Restart(size_t gpu);
  void Wait(size_t);

  // A process, as Mover.
  void Report(Process* p, bool is_needed);
  void Result(Process* p, bool done);
  void Obey(Process* p, const Message& order);
  void BeginRest(Process* p, bool to_host);
  void Rest(Process* p);
  void Leave(Process* p);
  void Return(Process* p);
  void GoOn(Process* p);
  bool ResumeView(Process* p);
  bool IsInFormerPool(const Process& p) const;
  void LoseStore(Process* p);
  bool HasRoom(uint32_t gpu) const;
  bool IsOpen(const absl::optional<size_t>& connection) const;
  bool Hears(const absl::optional<size_t>& connection) const;
  absl::optional<size_t> StoreOf(const Process& p) const;
  Process& PoolOf(size_t e) {
    return processes_[engines_[e].first + engines_[e].ranks];
  }
  uint32_t FirstGpu(size_t e) const { return options_.engines[e][0]; }
  bool IsAlive(size_t e) const;
  bool AllServe(size_t e) const;

  bool MustWaitForRoom(uint32_t gpu, size_t e) const;
  void LetGo(uint32_t gpu, size_t e, size_t connection);
  void CarryOut(uint32_t gpu);
  bool Rests() const;
  void Check();
  void CheckRest();
  std::string Account() const;

  const RankOptions options_;
  ManualClock clock_;
  uint32_t gpus_ = 0;
  std::vector<Process> processes_;
  std::vector<Engine> engines_;
  std::deque<Connection> connections_;
  std::vector<std::unique_ptr<server::MoveBook>> books_;  // null: it has died
  std::vector<Gpu> rooms_;
  std::map<uint64_t, uint32_t> orders_;  // a connection's, without a result
  std::map<uint64_t, uint32_t> asked_;   // GPUs, without an answer
  uint64_t last_asker_ = 1'000'000;
  uint32_t crashes_ = 0, deaths_ = 0, drops_ = 0;
  bool settles_ = false;
  uint64_t left_ = 0, returned_ = 0, steps_ = 0, undone_ = 0, let_go_ = 0;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_RANK_WORLD_H_
