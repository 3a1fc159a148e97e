#ifndef TOOLS_LAB_SIM_GPU_GPU_H_
#define TOOLS_LAB_SIM_GPU_GPU_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/fineserved/admission/rooms/set_rooms.h"
#include "daemon/pool/auto_size.h"
#include "daemon/pool/pool_state.h"
#include "daemon/scheduling/evict/idle_engines.h"
#include "daemon/scheduling/local/local_scheduler.h"
#include "tools/lab/sim/core/agenda.h"
#include "tools/lab/sim/gpu/leased_view.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/sim/simulated_engine/engine.h"
#include "tools/lab/sim/simulated_engine/slab_blocks.h"

namespace fineserve::sim {

// A request on its way to a GPU.
struct Request {
  sched::RequestId id{0};
  uint32_t model = 0;  // place in GpuSetup::models
  uint32_t prompt = 0, output = 0;
  uint32_t told_prompt = 0;  // as the proxy counts or estimates it
  uint32_t told_output = 0;  // that the client asks for at most; 0: not said
  Micros arrival = 0;        // at the proxy
  Micros asked = 0;          // when the proxy asks this GPU's daemon
  bool tell_waits = false;   // others can be asked, too
};

// Progress of a request.
struct News {
  enum class Kind : uint8_t {
    kAdmitted,
    kRefused,
    kWaits,  // it cannot start now; sent if Request::tell_waits
    kFirstToken,
    kDone,
    kBroken,  // its engine was stopped
  };
  sched::RequestId id;
  Kind kind;
  Micros at;
  uint32_t generated = 0;
  Micros start_us = 0;  // of one that waits: not before about so long
};

// One GPU with its daemon and its engines, in virtual time. Daemon, scheduler
// and pool are those that ship: the pool's machine and its share policy
// (slab::PoolState), the local scheduler with its policy and predictor
// (sched::LocalScheduler), and the layer between them (admission::SetRooms). In
// place of the event loop of daemon/fineserved/server, after each event the
// pool settles, rooms are set and the scheduler decides.
//
// Engines with a view lease slabs, which are filled before each lease. An
// engine may start and stop while others run; one that stopped leaves its slabs
// to the pool's machine, as any process that exits does. With an EvictionSetup
// idle engines leave the GPU and come back, and the pool's size follows
// (evict::IdleEngines, slab::AutoSize). Deaths and whole leases do not occur.
// While no request waits, rooms are not set, since they are set again before
// the next decision.
//
// Time is in µs from the start of the run. Confined to one thread.
class Gpu {
 public:
  struct Counters {
    uint64_t preemptions = 0, steps = 0, tokens = 0;
    uint64_t slabs_leased = 0, slabs_asked_back = 0, slabs_returned = 0;
    uint64_t evictions = 0, activations = 0;
    // Counts evictions that follow an activation within kStays times its
    // duration.
    uint64_t thrashes = 0;
  };

  // Returns InvalidArgument or ResourceExhausted, naming the engine and the
  // fix, if an engine cannot have its view or the policy is unknown.
  static absl::StatusOr<std::unique_ptr<Gpu>> Create(const GpuSetup& setup);

  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Call in the order of Request::asked. Call Run(request.asked) next.
  void Submit(const Request& request) {
    inbox_.push_back(request);
    next_ = std::min(next_, request.asked + setup_.path.ask_us);
  }
  // Tells that another GPU has admitted the request; it stops waiting here.
  void Withdraw(sched::RequestId id);
  // Returns the time at which Run has something to do; kNever if nothing
  // happens without a new request.
  Micros next() const { return next_; }
  // Does everything due at `now`, which never decreases.
  void Run(Micros now);
  std::vector<News> TakeNews() { return std::exchange(news_, {}); }

  // --- Engines that a plan moves (gpu_engines.cc); `engine`: place in
  // GpuSetup::engines ---

  // From `now` on, accepts requests by what the daemons know of the plan, which
  // must outlive this object. Call it again whenever the plan has changed.
  void FollowPlan(const wire::NewestPlan* plan, Micros now);
  // Makes an engine that does not run begin to serve. Returns the same errors
  // as Create; after an error, the engine does not run.
  absl::Status Start(uint32_t engine, Micros now);
  // Stops an engine that runs. Its unfinished requests are reported as broken.
  // Until `gone`, the driver lists its process, so the pool keeps its slabs.
  void Stop(uint32_t engine, Micros now, Micros gone);
  bool Runs(uint32_t engine) const { return engines_[engine]->pid != 0; }
  // Engines as the daemon knows them.
  const std::vector<admission::ServingEngine>& engines() const {
    return serving_;
  }

  Counters counters() const;
  const sched::LocalScheduler& scheduler() const { return scheduler_; }
  const slab::PoolState* pool() const { return pool_.get(); }

  // Aborts, and says why, if an engine uses KV that is not leased to it, or the
  // pool's books are wrong.
  void CheckInvariants() const;

 private:
  struct Running {  // an engine
    Running(const EngineSetup& setup, size_t place, uint32_t slabs)
        : setup(setup),
          place(place),
          blocks(slabs),
          engine(setup.limits, setup.step_time, &blocks) {}
    const EngineSetup setup;
    const size_t place;  // among engines
    pid_t pid = 0;       // 0: it does not run
    SlabBlocks blocks;
    Engine engine;
    std::unique_ptr<LeasedView> view;
    Micros plan_at = 0;    // not before; later than now while it is blocked
    bool planned = false;  // its next step, which has not begun
    slab::EngineId pool_id{0};  // with a view
    enum class At : uint8_t { kGpu, kLeaves, kHost, kWaitsForRoom, kComes };
    At at = At::kGpu;
    Micros move_ends = kNever;  // of one that leaves or comes
    Micros came = 0;            // to the GPU
  };
  // Messages under way to engines, in the order of arrival.
  struct Sent {
    Micros at;
    uint32_t engine;
    Work work;
  };
  struct Answered {
    Micros at;
    Engine::Token token;
  };

  Gpu(const GpuSetup& setup, std::unique_ptr<sched::Policy> policy);
  void AddEngine(const EngineSetup& setup);

  // gpu_engines.cc
  absl::Status Begin(Running* engine);
  void Break(Running* engine);
  void Exit(Running* engine, Micros gone);
  void UpdateTakes();
  void SendAway();
  void WakeAt(Micros now);

  // gpu_moves.cc
  bool FitsAtStart(const EngineSetup& engine) const;
  void PlaceAtStart();
  void Stay(Running* engine);
  Micros MoveTime(const Running& engine) const;
  Micros BackIn(const Running& engine) const;
  absl::optional<evict::Residence> ResidenceOf(size_t engine) const;
  uint64_t FreeBytes() const;
  void SeeIdle();
  void BringBack(Running* engine);
  void CallBack(const std::set<sched::ModelId>& refused);
  void Move();
  void EndMove(Running* engine);
  void MakeRoom(Running* engine);
  bool LetOneLeave(evict::RoomFor reason, const std::string& asker,
                   uint64_t lack);
  void Leave(Running* engine);
  void LeaveView(Running* engine);
  void BringAhead();
  void SizePool();
  bool AnyLeaves() const;
  Micros NextMove() const;

  // gpu_oracle.cc
  bool IsClairvoyant() const;
  absl::optional<size_t> LastNeeded(evict::RoomFor reason,
                                    const std::string& asker) const;
  void BringBackNext();

  // gpu_pool.cc
  absl::Status StartView(Running* engine);
  absl::Status ActivateView(Running* engine);
  void FillAtStart();
  void ListProcesses();
  void LeaseFloors();
  void Execute();
  void EndFills();
  uint32_t UsedBlocks(slab::EngineId id, slab::SlabId slab) const;
  void SettlePool();
  void LookAtLeases(Running* engine);
  void ReturnDrained(Running* engine);
  void TellWant(Running* engine);

  // gpu.cc
  void TakeInbox();
  bool IsTooLong(const Request& request) const;
  void SetRooms();
  void Decide();
  void Obey(const sched::Decision& decision);
  void TakeSent();
  void EndRuns();
  void EndRun(Running* engine);
  void TakeAnswers();
  void Beat();
  void BeginRuns();
  void Plan(Running* engine);
  void Slow(double factor);
  size_t Working() const;
  Micros NextEvent() const;

  GpuSetup setup_;
  Micros now_ = 0;
  Micros next_ = kNever;
  bool begun_ = false;  // at now_, engines have begun their steps
  std::vector<std::unique_ptr<Running>> engines_;  // by ReplicaId
  std::deque<Request> inbox_;  // asked for at Request::asked
  std::deque<Sent> sent_;
  std::deque<Answered> answered_;
  std::vector<News> news_;
  std::vector<Engine::Token> tokens_;
  double slowdown_ = 1;

  // The scheduler's part of the daemon.
  sched::LocalScheduler scheduler_;
  std::vector<admission::ServingEngine> serving_;
  admission::AskPool ask_;
  // A request without a decision, and what its engine will need.
  struct Waiting {
    Work work;
    sched::ModelId model;
  };
  std::unordered_map<uint64_t, Waiting> waiting_;
  std::vector<sched::RequestId> tell_waits_;  // once they have been considered
  bool undecided_ = false;  // something happened since it decided
  uint64_t running_ = 0;    // requests that engines were sent
  Micros wake_ = kNever;
  Micros next_beat_ = kNever;

  // The pool's part of the daemon.
  std::unique_ptr<slab::PoolState> pool_;
  std::unordered_map<slab::EngineId, size_t> places_;  // among engines_
  bool unsettled_ = false;
  Micros next_poll_ = kNever;
  std::deque<std::pair<Micros, slab::SlabId>> fills_;  // that end then
  pid_t last_pid_ = 0;
  // Processes that have exited, each with the time until which the driver lists
  // it.
  std::vector<std::pair<Micros, pid_t>> leaving_;

  // Engines that leave and come back; null: all stay.
  std::unique_ptr<evict::IdleEngines> idle_;
  std::unique_ptr<slab::AutoSize> size_;
  uint64_t weight_bytes_ = 0;  // on the GPU
  Running* first_ = nullptr;   // that waits for room, or comes
  Micros link_free_ = 0;
  Micros next_size_ = kNever;
  Micros next_kv_ = 0;
  Micros next_ahead_ = kNever;  // when engines are next brought back ahead
  Micros ahead_until_ = 0;
  Counters moved_;

  const wire::NewestPlan* plan_ = nullptr;  // null: nothing is planned
  Counters stopped_;                        // of engines that were stopped
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_GPU_GPU_H_
