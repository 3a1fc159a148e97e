#ifndef TESTS_PROTOCOL_DROP_WORLD_H_
#define TESTS_PROTOCOL_DROP_WORLD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/eviction/move_book.h"
#include "daemon/scheduling/overload/drop_turns.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// Initial state of a world of replicas that read each other's parameters, and
// the faults that are injected into it.
struct DropOptions {
  uint32_t crashes = 0;    // of daemons, in all
  uint32_t deaths = 0;     // of processes, in all; another one starts for each
  uint32_t drops = 0;      // of connections, in all
  uint32_t silences = 0;   // of a process that another one asks, in all
  uint32_t shortages = 0;  // restorations without room, in all
  // A process also lends what it has dropped, and drops what it lends.
  bool drops_on_both_sides = false;
  // A process maps the other's memory before its own gate is closed.
  bool maps_before_the_gate = false;
  // A process writes its parameters while another process reads them.
  bool writes_while_read = false;
  // A process maps the other's memory without a comparison.
  bool compares_nothing = false;
  // When a process leaves the GPU, memory that others read leaves as well.
  bool leaves_readers = false;
  // A process does not check whether the process whose parameters it reads has
  // ended.
  bool misses_the_end = false;
  // A process does not repeat that it has stopped reading, or asks only once
  // for what it has lent.
  bool says_once = false;
  // An operator orders drops and restorations; the daemons' policy orders them
  // in bursts.
  bool has_operator = true;
  bool has_policy = false;
  // The policy orders a restoration only once, even if it fails.
  bool restores_once = false;
};

// Two replicas on two GPUs, each with its daemon's own MoveBook and DropTurns,
// which order as AdmissionService has them, beside an operator; and a model of
// Mover, Sharer and ResidentMemory: how a process drops its parameters for the
// other's, restores them, leaves the GPU and writes them (design note 0048). A
// process has two allocations, each with the same number as its content, and
// may read one of the other's while that one reads the other. A question of one
// process to the other is one event, since the other answers under its mutex,
// unless it is silent: then it is read later, or never.
//
// At any time a process computes with the parameters that it has written last,
// no memory goes from under a step, and what a process reads is the other's
// own, as long as that lives: so each parameter is in one of them at least.
// When all has come to rest, each order has a result and each Ask an answer,
// who was to restore has its own, who waited to write has written, and nothing
// is lent to a process that does not read it. With the policy each has its own
// parameters then, since no burst lasts.
class DropWorld : public Choosing<DropWorld> {
 public:
  explicit DropWorld(const DropOptions& options);
  DropWorld(const DropWorld&) = delete;
  DropWorld& operator=(const DropWorld&) = delete;

  // Lets one possible event happen, chosen by a number.
  void Happen(uint32_t random);
  // Lets everything under way finish and nothing new begin. Returns what is
  // wrong afterwards.
  std::string Settle();

  uint64_t dropped() const { return dropped_; }
  uint64_t restored() const { return restored_; }
  uint64_t refused() const { return refused_; }  // drops
  // Number of checks in which two processes read from each other.
  uint64_t mutual() const { return mutual_; }
  uint64_t written() const { return written_; }
  uint64_t left() const { return left_; }
  // By the policy.
  uint64_t ordered_drops() const { return ordered_drops_; }
  uint64_t ordered_restores() const { return ordered_restores_; }

 private:
  static constexpr size_t kReplicas = 2;

  struct Message {
    enum Kind { kReport, kOrder, kCompare, kCompared };
    Kind kind;
    abi::MoveReport report = {};
    uint32_t order = 0;
    abi::Place to = abi::Place::kGpu;
    server::ParameterDrop drop = {};
    bool equal = false;
  };
  struct Connection {
    size_t replica;
    uint32_t pid;
    bool open = true;     // for the process
    bool handled = true;  // by the daemon
    std::deque<Message> up = {}, down = {};
  };
  enum class Doing {
    kWaits,
    kCollects,  // asks the lender for what it has taken
    kCompares,  // awaits the daemon
    kSwapsIn,   // has what it needs to map the other's
    kMakes,     // makes memory of its own
    kSwapsOut,  // has filled it
    kRecalls,   // before it leaves
  };
  struct Allocation {
    absl::optional<size_t> memory = {};  // that is mapped
    absl::optional<size_t> next = {};    // to be mapped
    size_t step_memory = 0;
    uint64_t kept = 0;  // its copy on the host
    bool taken = false;
    bool dropped = false;
    std::set<uint32_t> readers = {};  // pids
    bool has_own() const { return !taken && !dropped; }
  };
  struct Process {
    uint32_t pid = 0;
    bool alive = true;
    absl::optional<size_t> connection = {};
    abi::Place place = abi::Place::kGpu;
    bool gate_open = true;
    bool in_step = false;
    std::array<Allocation, 2> allocations = {};
    uint64_t wrote = 0;
    Doing doing = Doing::kWaits;
    uint32_t order = 0;  // that it carries out; 0: none
    abi::Place order_to = abi::Place::kGpu;
    bool drops = false;          // something is taken or dropped
    uint64_t drop_bytes = 0;     // that it is to have dropped
    uint32_t lender = 0;         // pid; 0: none
    uint32_t former_lender = 0;  // that has not heard the end yet
    bool has_said = false;       // it, once
    bool recalled = false;
    bool has_asked_back = false;  // once
    bool thaws = false;
    bool needs = false;  // on the host, and a call waits

    uint64_t dropped_bytes() const;
    bool is_read() const;
  };

  void OpenDaemon(size_t r);
  void StartProcess(size_t r);
  // The possible events; the argument is a replica or a connection.
  void BeginStep(size_t r);
  void EndStep(size_t r);
  void Connect(size_t r);
  void Receive(size_t r);
  void Collect(size_t r);
  void SwapIn(size_t r);
  void Make(size_t r);
  void SwapOut(size_t r);
  void AwaitReaders(size_t r);
  void GiveUpReaders(size_t r);
  void Tend(size_t r);
  void SayEnd(size_t r);
  void AskBackReaders(size_t r);
  void Thaw(size_t r);
  void Write(size_t r);
  void Touch(size_t r);
  void TakeBackEnded(size_t r);
  void Drop(size_t r);
  void Die(size_t r);
  void Start(size_t r);
  void Deliver(size_t c);
  void AskDrop(size_t r);
  void AskOut(size_t r);
  void AskBack(size_t r);
  void Crash(size_t r);
  void Restart(size_t r);
  void ChangeLoad(size_t r);
  void LetPolicyLook(size_t r);

  // A process.
  Process* Other(size_t r) { return &processes_[1 - r]; }
  Process* Living(uint32_t pid);
  void Obey(size_t r, const Message& order);
  void BeginDrop(size_t r, const server::ParameterDrop& drop);
  void Take(Process* p);
  void AbandonDrop(size_t r);
  void BeginRestore(size_t r);
  void AskReadersBack(size_t r);
  void EndRestore(size_t r, bool done);
  void Leave(size_t r);
  void ComeBack(size_t r);
  void Report(size_t r, bool is_needed);
  void Result(size_t r, bool done);
  void LoseConnection(size_t r);
  bool IsConnected(const Process& p) const;
  bool IsSilent();
  // A daemon, as SocketServer.
  void CarryOut(size_t r);
  void Ask(size_t r, abi::Place to, const server::ParameterDrop& drop = {});
  bool PolicyDrops(size_t r);

  bool Rests() const;
  void Check();
  void CheckRest();

  const DropOptions options_;
  ManualClock clock_;
  std::array<Process, kReplicas> processes_;
  std::deque<Connection> connections_;
  std::vector<uint64_t> memory_;  // contents, by number
  std::array<std::unique_ptr<server::MoveBook>, kReplicas> books_;
  std::array<std::unique_ptr<overload::DropTurns>, kReplicas> turns_;
  std::array<bool, kReplicas> bursts_ = {};
  std::array<bool, kReplicas> has_restored_ = {};  // the policy, since its drop
  std::map<uint64_t, size_t> orders_;  // by connection, without a result
  std::map<uint64_t, size_t> asked_;   // without an answer; of which daemon
  uint64_t last_asker_ = 1'000'000;
  uint32_t last_pid_ = 0;
  uint32_t dice_ = 0;  // the last random number
  uint32_t crashes_ = 0, deaths_ = 0, drops_ = 0, silences_ = 0;
  uint32_t shortages_ = 0;
  bool settles_ = false;
  uint64_t dropped_ = 0, restored_ = 0, refused_ = 0, written_ = 0, left_ = 0;
  uint64_t mutual_ = 0;
  uint64_t ordered_drops_ = 0, ordered_restores_ = 0;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_DROP_WORLD_H_
