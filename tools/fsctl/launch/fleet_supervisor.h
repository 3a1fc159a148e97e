#ifndef TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_
#define TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/launch/engine_register.h"
#include "tools/fsctl/launch/known_plan.h"
#include "tools/fsctl/launch/plan_follower.h"
#include "tools/fsctl/launch/supervised_engine.h"
#include "tools/fsctl/process/child.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Starts, watches and restarts the engines of a fleet that have a command, and
// prints a line per event. Of a fleet with a planner it runs those places that
// the newest plan wants, and its engines outlive a killed fsctl: the next one
// adopts them. Confined to one thread, in a program without other children.
// ZeroMQ's threads take no lock that a forked child needs, except malloc's,
// which fork leaves free.
class FleetSupervisor {
 public:
  // `globals` must outlive it. A gpu in `fleet` is a whole UUID.
  FleetSupervisor(const Globals& globals, config::Fleet fleet,
                  std::string log_folder);

  // Engines that have a command.
  size_t size() const { return engines_.size(); }

  // For the engines that are started from now on.
  void SetEngineEnvironment(Environment environment) {
    environment_ = std::move(environment);
  }

  // Takes over the engines that a former fsctl has left running. Those that the
  // fleet does not start any more are stopped. To be called once, before Turn.
  void Adopt(EngineRegister engines);

  // Whether an engine that does not run could listen at its address.
  // FailedPrecondition, naming one, if another program does: an engine that is
  // started beside it would end, and that program's answers would be taken for
  // its own.
  absl::Status CheckAddresses() const;

  // To be called often: notices ended engines, follows the plan, starts engines
  // that are due and checks the health of the others.
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
  };

  Engine* Find(const std::string& name);
  void Follow();
  void SetWish(Engine* engine, Wish wish) const;
  void Steer(Engine* engine);
  void Start(Engine* engine);
  [[noreturn]] void Become(const config::FleetEngine& spec);
  void Check(Engine* engine) const;
  void Reap();
  void Ended(Engine* engine, const std::string& how) const;
  void Signal(int signal) const;
  // Waits until no engine is left, for at most `timeout_ns`.
  void ReapAll(uint64_t timeout_ns);

  size_t Running() const;
  std::string ServingCount() const;  // "1 of 2 serving"
  std::string LogOf(const config::FleetEngine& spec) const;
  // A line for people, or an object for programs.
  void Tell(const std::string& event, const Engine* engine = nullptr) const;

  const Globals& globals_;
  const std::string log_folder_;
  const bool is_planned_;
  Environment environment_;
  std::vector<Engine> engines_;
  absl::optional<EngineRegister> register_;
  KnownPlan plan_;
  PlanFollower follower_;
  bool stopping_ = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_
