#ifndef TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_
#define TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config/fleet.h"
#include "tools/fsctl/launch/supervised_engine.h"
#include "tools/fsctl/process/child.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Starts, watches and restarts the engines of a fleet that have a command, and
// prints a line per event. In a single-threaded program without other children.
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

  // To be called often: notices ended engines, starts those that are due and
  // checks the health of the others.
  void Turn();

  // Stops all engines: asks them to end, and kills those that take too long.
  void Stop();

 private:
  struct Engine {
    config::FleetEngine spec;
    SupervisedEngine life;
  };

  void Start(Engine* engine);
  [[noreturn]] void Become(const config::FleetEngine& spec) const;
  void Check(Engine* engine) const;
  void Reap();
  void Ended(Engine* engine, int status) const;
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
  Environment environment_;
  std::vector<Engine> engines_;
  bool stopping_ = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LAUNCH_FLEET_SUPERVISOR_H_
