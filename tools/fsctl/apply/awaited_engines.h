#ifndef TOOLS_FSCTL_APPLY_AWAITED_ENGINES_H_
#define TOOLS_FSCTL_APPLY_AWAITED_ENGINES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/fleet/door/message.h"

namespace CLI {
class App;
}

namespace fineserve::fsctl {

// Follows engines of an fsctl up on the way to their goals, by its repeated
// reports. Pure.
class AwaitedEngines {
 public:
  // Sets the goal that the engine serves after it has been started more often
  // than `starts`.
  void Serves(const std::string& engine, uint64_t starts);
  // Sets the goal that the engine ends for good, or until an operator starts
  // it.
  void Ends(const std::string& engine);

  // Returns the news since the last call, a line per engine.
  std::vector<std::string> Observe(
      const std::vector<apply::EngineState>& engines);

  // True if the wait is over: each engine has reached its goal, or never will.
  bool done() const { return pending_.empty(); }
  // Why engines will not reach their goals; empty if all is well.
  const std::vector<std::string>& troubles() const { return troubles_; }
  // The names of the engines that have not reached their goals yet.
  std::vector<std::string> Pending() const;

 private:
  // An engine that was started this often without success will not serve.
  static constexpr uint64_t kMostStarts = 3;

  struct Goal {
    bool ends = false;
    uint64_t starts = 0;
    std::string state = {};  // as it was last
  };

  // True if the wait for this engine is over.
  bool IsThere(const std::string& name, const Goal& goal,
               const apply::EngineState* now);

  std::map<std::string, Goal> pending_;
  std::vector<std::string> troubles_;
};

// Asks the fsctl up behind `door` repeatedly until all engines have reached
// their goals, or until `timeout_s`; prints what happens to them unless
// `quiet`. Returns 0, or prints what went wrong and returns the exit code.
int AwaitEngines(const std::string& door, AwaitedEngines* engines,
                 double timeout_s, bool quiet);

// Adds --drain: the seconds that an engine gets to finish its running requests.
void AddDrainTime(CLI::App* command, double* drain_s);
// Adds --timeout: the seconds to wait until the engines have done `what`.
void AddTimeout(CLI::App* command, double* timeout_s,
                const char* what = "serve");

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_AWAITED_ENGINES_H_
