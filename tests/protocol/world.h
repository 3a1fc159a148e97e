#ifndef TESTS_PROTOCOL_WORLD_H_
#define TESTS_PROTOCOL_WORLD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/pool/pool_state.h"
#include "shim/testdata/plain_slab_table.h"
#include "shim/view/block_allocator.h"
#include "shim/view/view_leases.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// An event that may happen next. Each event is atomic in the real system, too:
// one message handled, one call of an engine, one step executed by the GPU.
enum class Act : uint8_t {
  kLook,      // the engine looks at its leases (schedule entry)
  kBegin,     // it begins a step, with every block that is free
  kFree,      // it frees its oldest block, steps in flight or not
  kExecute,   // the GPU executes its oldest step: every block is written
  kEnd,       // the engine learns of that
  kWantMore,  // its load grows
  kWantLess,
  kSuspend,   // it goes to sleep: nothing is in use, no step in flight
  kResume,    // it wakes up, or is refused
  kDeliver,   // the daemon reads its next message
  kFill,      // the zero fills under way complete
  kPoll,      // the daemon's loop runs once
  kWait,      // so it does after a while in which nothing else happens
  kDie,       // kill -9; its steps stay on the GPU
  kBury,      // the daemon learns of that
  kRestart,   // another daemon takes the pool over
  kJoin,      // the engine finds that daemon, and tells what may be lost
  kLateFill,  // the GPU executes a fill of a daemon that has ended
  kExec,      // another program replaces the engine's; its steps stay
  kContext    // that one makes a context: the driver lists its pid from now on
};
const char* NameOf(Act act);

struct Event {
  static constexpr uint8_t kLives = 255;

  Act act;
  uint8_t engine;  // 0 where it does not matter
  // Number of actions on the table and the device which this event triggers,
  // and after which the daemon is killed with kill -9.
  uint8_t dies_after = kLives;
};
std::string Text(const std::vector<Event>& events);

// Size of a world, and the faults that are injected into it.
struct Options {
  uint32_t slabs = 3;  // the first engine wants two of them at first
  std::array<uint32_t, 2> steps = {1, 1};  // that each engine begins
  uint32_t changes = 1;      // of what an engine wants, per engine
  uint32_t deaths = 1;       // in all
  uint32_t waits = 1;        // in which slabs become late, in all
  uint32_t suspensions = 0;  // per engine
  uint32_t crashes = 0;      // of daemons, in all
  bool execs = false;        // a death may leave the process to another program
  // An engine returns a slab as soon as its last block is free.
  bool no_fence = false;
  // The driver forgets a process at once, while its steps still run.
  bool no_quarantine = false;
  // A fill completes without writing.
  bool no_zero = false;
  // An engine goes to sleep while steps of its own are in flight.
  bool no_synchronize = false;
  // The driver forgets a daemon at once, while its fills are under way.
  bool no_former_daemon = false;
  // The next daemon does not ask which members have died in between.
  bool no_meeting = false;
  // The next daemon assumes that slabs which were asked back have been
  // returned, and zeroes them.
  bool takes_asked_back = false;
  // The table names the next daemon before it says what that daemon waits for.
  bool named_first = false;
  // An engine does not repeat messages that the former daemon may not have
  // read.
  bool no_repeating = false;
  // A program makes a context without asking whether the daemon still awaits
  // the end of the former program.
  bool no_waiting_start = false;
};

// A small FineServe without sockets, processes or memory: the pool's own
// machine (slab::PoolState), two engines made of the shim's own bookkeeping
// (ViewLeases, BlockAllocator), and a GPU that executes steps on request. The
// caller chooses the next event, so that every order can be tried.
//
// At every write of the GPU, the slab must belong to the engine whose step it
// is, be it leased, asked back or quarantined. When an engine begins to use a
// slab, all of it must be zero.
class World : public Judged {
 public:
  using Options = protocol::Options;
  using Event = protocol::Event;

  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::vector<Event> Enabled() const;
  void Apply(Event event);

  // Lets everything that is under way finish, and nothing new begin: steps end,
  // blocks are freed, messages and deaths are noticed. Then every slab must be
  // free or held by a living engine, and no slab may move from then on,
  // whatever the engines still want. Returns what is wrong, or "". The world
  // cannot be used afterwards.
  std::string Settle();

  // Two worlds with equal digests have the same future, except that the limits
  // of claims to their engines' use (PoolState) may differ.
  uint64_t Digest();

 private:
  static constexpr int kEngines = 2;

  struct Step {
    uint64_t number;
    bool executed;
    std::vector<uint32_t> blocks;
  };
  struct Message {
    enum Kind : uint8_t { kReturn, kWant, kSuspend } kind;
    uint32_t value;  // wanted slabs, or slab
    uint32_t lease;
  };
  struct Engine {
    slab::EngineId id;
    pid_t pid;
    uint32_t steps_left = 0;
    bool alive = true;
    bool buried = false;
    bool replaced = false;     // by a program that is no engine
    bool has_context = false;  // that program
    bool suspended = false;
    uint32_t suspensions = 0;
    shim::ViewLeases leases;
    shim::BlockAllocator blocks;
    std::deque<uint32_t> used;  // oldest first
    std::deque<Step> steps;     // in flight, oldest first
    std::deque<Message> outbox;
    bool joined = true;  // to the daemon that serves
    uint32_t wanted = 1;
    uint32_t changed = 0;
  };

  void Start(Engine* e, int index);
  bool Serve(Engine* e);
  void Suspend(Engine* e);
  void Resume(Engine* e);
  bool MaySuspend(const Engine& e) const;
  bool MayMakeContext(const Engine& e) const;
  void Look(Engine* e);
  void Begin(Engine* e);
  void Execute(Engine* e);
  void Deliver(Engine* e);
  void Want(Engine* e, uint32_t slabs);
  void ReturnSlab(Engine* e, uint32_t view_index);
  void FinishSteps(Engine* e);
  void Execute();
  void Publish(const slab::Effects& effects);
  void Poll();
  void ApplyToDaemon(Event event);

  // world_crash.cc
  std::vector<Event> WithCrashes(std::vector<Event> events) const;
  bool Lives();
  void Crash();
  void Restart();
  void Join(Engine* e);
  void LateFill();
  void KeepLeases(Engine* e);
  abi::SlabWord WordOf(uint32_t slab);
  bool IsListed(const Engine& e) const;
  uint64_t Moves() const;
  void CompleteFills(bool write);
  void Round();
  uint32_t SlabOf(uint32_t block) const;
  bool HasToLook(const Engine& e) const;

  const Options options_;
  uint64_t now_ns_ = 1;
  slab::PoolState pool_;
  shim::PlainSlabTable table_;
  std::vector<bool> dirty_;  // by slab: it is not all zero
  std::vector<bool> fresh_;  // by slab: it changed since the last poll
  std::vector<slab::SlabId> filling_;
  // Fills of daemons that have ended, with their pid.
  std::vector<std::pair<slab::SlabId, pid_t>> late_fills_;
  pid_t daemon_ = 1;
  bool serves_ = true;  // a daemon lives
  uint32_t deeds_left_ = UINT32_MAX;
  uint32_t crashes_ = 0;
  std::array<Engine, kEngines> engines_;
  uint32_t deaths_ = 0;
  uint32_t waits_ = 0;
  bool touched_ = false;  // the daemon's loop has something to come round for
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WORLD_H_
