#ifndef TOOLS_UP_FLEET_SUPERVISOR_H_
#define TOOLS_UP_FLEET_SUPERVISOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/fleet_description.h"
#include "daemon/fleet/door/message.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/up/engine_register.h"
#include "tools/up/engine_rest.h"
#include "tools/up/fleet_check.h"
#include "tools/up/http_health.h"
#include "tools/up/oom_watch.h"
#include "tools/up/orphan_watch.h"
#include "tools/up/plan_follower.h"
#include "tools/up/request_follower.h"
#include "tools/up/supervised_engine.h"
#include "tools/up/wish.h"

namespace fineserve::fsctl {

// Default time that engines get to answer their running requests; the same as
// the planner's drain.
inline constexpr double kUsualDrainS = 300;

// Options of `fsctl up` for its supervisor.
struct SupervisorOptions {
  std::string fleet_path;
  std::string log_folder;
  bool timestamps = false;     // before each line
  bool keeps_orphans = false;  // leaves engines in a former daemon's pool
};

// Starts, watches and restarts the engines of a fleet that have a command, and
// prints a line per event. If it is killed, its engines go on, and the next
// supervisor adopts them. For a fleet with a planner it runs those places that
// the newest plan wants. Engines that start on request run while requests come
// (RequestFollower). It can take over another fleet while it runs: engines that
// have left the fleet, or must be started differently, answer their running
// requests before they end. So do engines that are left in a former daemon's
// pool, one after another. Confined to one thread, in a program without other
// children. ZeroMQ's threads take no lock that a forked child needs, except
// malloc's, which fork leaves free.
class FleetSupervisor {
 public:
  // `globals` must outlive it.
  FleetSupervisor(const Globals& globals, FleetToRun fleet,
                  SupervisorOptions options);

  // Engines that have a command.
  size_t size() const { return engines_.size(); }

  // Sets the environment of the engines that are started from now on.
  void SetEngineEnvironment(Environment environment) {
    environment_ = std::move(environment);
  }

  // Takes over the engines that a former fsctl left running. Stops those that
  // the fleet no longer starts. Call this once, before Turn.
  void Adopt(EngineRegister engines);

  // Checks that each engine that does not run could listen at its address.
  // FailedPrecondition, naming the engine, if another program listens there: an
  // engine that is started beside it would end, and the program's answers would
  // be taken for the engine's.
  absl::Status CheckAddresses() const { return CheckAddresses(engines_); }
  // Checks the addresses of another fleet. An address of an engine of the
  // present fleet counts as free, since it is free when that engine has ended.
  absl::Status CheckAddresses(const config::Fleet& fleet) const;

  // Runs another fleet from now on. Engines that are to end get no new
  // requests, and end when they have answered their running ones, or after
  // `drain_ns`.
  void Take(FleetToRun fleet, uint64_t drain_ns);

  // Lets these engines end as Take does, and starts them again.
  // InvalidArgument, with nothing done, if this object does not start one of
  // them.
  absl::Status Restart(const std::vector<std::string>& names,
                       uint64_t drain_ns);
  // As Restart, but the engines stay down until StartEngines or Restart, even
  // under the next fsctl that runs the fleet.
  absl::Status StopEngines(const std::vector<std::string>& names,
                           uint64_t drain_ns);
  // Starts those of the named engines that do not run.
  absl::Status StartEngines(const std::vector<std::string>& names);

  const config::FleetDescription& written() const { return written_; }
  // The engines as they are now.
  std::vector<apply::EngineState> States() const;

  // Call this often. Notices ended engines, follows the plan, starts engines
  // that are due, restarts orphans and checks the health of the others.
  void Turn();

  // Stops all engines: asks them to end, and kills those that take too long.
  void Stop();

 private:
  struct Engine {
    config::FleetEngine spec;
    SupervisedEngine life = {};
    driver::Descriptor pidfd = {};  // of an adopted one: it is no child
    Wish wish = Wish::kRun;
    bool is_in_fleet = true;
    // Time since which an operator has kept the engine stopped.
    absl::optional<uint64_t> stopped_ns = {};
    // True if the engine must end: it rests until it has answered its running
    // requests, at the latest until `end_ns`.
    bool rests = false;
    uint64_t end_ns = 0;
    // True if the engine rests for lack of requests, or to make room for
    // another engine (RequestFollower): it goes on if a request comes, unless
    // another engine waits for its place.
    bool may_go_on = false;
    // When the engine was first missing in the plan, or its memory was last off
    // the GPU; 0 if the plan wants it.
    uint64_t off_ns = 0;
    // True if another engine stops, or has stopped, so that this one can start:
    // the place is kept for this engine until then.
    bool has_place = false;
    // True if the engine has ended in order to be started again, whether or not
    // requests wait for it.
    bool starts_again = false;
    // The settings with which the engine is started again once it has ended.
    absl::optional<config::FleetEngine> next = {};
    uint64_t starts = 0;
    // Starts that ended before the engine served, and the time that its last
    // start took. They matter if it starts on request.
    uint64_t failed_starts = 0;
    double start_s = 0;
    std::string last_end = {};
    std::string state = {};  // as fsctl gets it
    uint64_t state_ns = 0;   // since then
    std::string trouble = {};
    uint64_t looked_ns = 0;  // for where it listens instead of at its url

    bool is_to_run() const {
      return wish == Wish::kRun && !stopped_ns && is_in_fleet;
    }
  };

  static uint64_t NowNs() { return Now().monotonic_ns; }
  Wish PlannedWish(Engine* engine) const;

  absl::Status CheckAddresses(const std::vector<Engine>& engines) const;
  void TakeEngine(config::FleetEngine spec, bool must_restart,
                  uint64_t drain_ns);
  // Makes a running engine rest, and then end.
  static void BeginRest(Engine* engine, uint64_t drain_ns);
  Engine* Find(const std::string& name);
  const Engine* Find(const std::string& name) const;
  // Returns InvalidArgument if one of them is not in the fleet.
  absl::Status CheckNames(const std::vector<std::string>& names) const;
  // As CheckNames; also if one of them could not be started.
  absl::Status CheckStartable(const std::vector<std::string>& names) const;
  // Ends an operator's stop: the plan and the requests decide about the engine
  // again.
  void EndStopped(Engine* engine) const;
  void Follow();
  void FollowRequests();
  // Cancels the stop of an engine for which requests wait again.
  void GoOnIfAsked(Engine* engine);
  // Sets the wish to run for engines that run without a wish, because they were
  // adopted or formerly were not started on request.
  void WishThatRunningEnginesRun();
  static RequestFollower::Engine OnRequest(const Engine& engine);
  void RollOrphans();
  void SetWish(Engine* engine, Wish wish, const std::string& why) const;
  void Steer(Engine* engine);
  void AskToEnd(Engine* engine) const;
  // True if another engine of this fleet still uses the address.
  bool MustWaitForAddress(const Engine& engine) const;
  // True if another engine that may leave the GPU, or stop for others, is
  // starting on the same GPU: if several started at once, each could hold a
  // part of the memory that one needs, with none idle. Also true while an
  // engine stops for another one, or has made room for it.
  bool MustWaitForStart(const Engine& engine) const;
  // True if a place on the GPU of `at` is reserved for another engine.
  bool IsPlaceOfAnother(const Engine& at) const;
  // Its state in a word.
  const char* StateOf(const Engine& engine) const;
  void Start(Engine* engine);
  [[noreturn]] void Become(const config::FleetEngine& spec);
  void CheckAll();
  void Checked(Engine* engine, HealthChecks::Health health,
               uint64_t asked_ns) const;
  void LookElsewhere(Engine* engine) const;
  void Reap();
  void Ended(Engine* engine, const std::string& how);
  void Signal(int signal) const;
  // Waits until no engine is left, for at most `timeout_ns`.
  void ReapAll(uint64_t timeout_ns);

  size_t Running() const;
  std::string ServingCount() const;  // "1 of 2 serving"
  std::string LogOf(const config::FleetEngine& spec) const;
  // Prints a line for people, or an object for programs.
  void Tell(const std::string& event, const Engine* engine = nullptr) const;

  const Globals& globals_;
  const SupervisorOptions options_;
  bool is_planned_;
  config::FleetDescription written_;
  Environment environment_;
  std::vector<Engine> engines_;
  absl::optional<EngineRegister> register_;
  wire::NewestPlan plan_;
  std::vector<std::string> planned_gpus_;
  std::unique_ptr<PlanFollower> follower_;
  AskProxies proxies_;
  EngineRest rest_;
  RequestFollower requests_;
  OrphanWatch orphans_;
  OrphanRoll roll_;
  HealthChecks checks_;
  OomWatch oom_;
  bool stopping_ = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_FLEET_SUPERVISOR_H_
