#ifndef TESTS_INTEGRATION_PLANNING_PLANNING_SITE_H_
#define TESTS_INTEGRATION_PLANNING_PLANNING_SITE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"

namespace fineserve::integration {

inline constexpr int kModels = 3;
inline constexpr int kGpus = 2;

// The plan as fsctl shows it. `states` maps an engine's name to "off", "start",
// "serve" or "retire".
struct SeenPlan {
  std::string leader;  // UUID of its GPU; empty: there is no leader
  std::map<std::string, std::string> states;
};

// A place of a model.
struct PlaceOf {
  int model = 0;
  int gpu = 0;
};

// Two GPUs with one daemon each, three models that may run on either GPU, one
// proxy, and fsctl up. By the models' profiles, a GPU has enough KV for one
// busy model beside idle ones, but not for two busy ones: its pool has 64 MiB,
// and a busy model under the load below can use all of it. So the leader must
// separate the two busiest models, whichever they are.
class PlanningSite : public ServingSite {
 protected:
  ~PlanningSite() override;
  void SetUp() override;

  // Starts everything, and waits until each model is served.
  void StartAll();
  void StartDaemonOn(int gpu);
  // Returns further flags for a daemon's command line.
  virtual std::vector<std::string> FlagsOfDaemon(int gpu) const { return {}; }
  // True if a place in state "off" keeps its process, off the GPU.
  virtual bool PlacesRest() const { return false; }
  // The machine's memory in the fleet file, where each engine's processes take
  // a GiB; 0: the file names neither.
  virtual int HostGib() const { return 0; }
  // Between two moves.
  virtual int CoolDownSeconds() const { return 1; }
  void StartUp();

  // Returns the plan as fsctl plan shows it; null if no daemon answers or there
  // is no plan.
  std::optional<SeenPlan> See();
  // Returns the GPU where the model serves by the plan; -1 if there is not
  // exactly one.
  static int ServingGpu(const SeenPlan& plan, int model);
  // Returns the place that is in this state, if there is one.
  static std::optional<PlaceOf> In(const SeenPlan& plan,
                                   const std::string& state);
  // Pins the model to the GPU and requests the plan's moves now. False if fsctl
  // refuses either.
  bool OrderMove(int model, int gpu);
  // Waits for a plan with a place in this state, and returns the place.
  std::optional<PlaceOf> AwaitState(const std::string& state);

  // True if each model answers through the proxy, and has one place that serves
  // and no other that runs, both by the plan and (unless places rest) by its
  // processes.
  bool IsSettled();
  bool Settles();

  // Sends both models requests without pause until EndLoads: short answers,
  // some of them streamed, and long ones, of which one has seconds left at any
  // time. So an engine that has to retire still has work for longer than it
  // takes to look at the plan on a busy machine.
  void BeginLoads(int a, int b);
  void EndLoads();
  int Count(Ending ending) const;
  // Number of concurrent requests to a model under load.
  static constexpr int kClients = 5;
  static constexpr int kLongAnswers = 3;

  // Two models that serve on one GPU, and the third one. With three models on
  // two GPUs, two must share one.
  struct Neighbours {
    int a = 0, b = 0, other = 0;
  };
  Neighbours FindNeighbours();

  static std::string EngineName(PlaceOf place);
  pid_t PidOf(PlaceOf place) const;
  // Kills the place's process, once there is one.
  void KillEngine(PlaceOf place);
  int GpuWithUuid(const std::string& uuid) const;

  static constexpr std::chrono::seconds kConvergence{60};

  const TinyModel models_[kModels] = {TinyModel("a"), TinyModel("b"),
                                      TinyModel("c")};
  std::string gpus_[kGpus];  // UUIDs
  std::unique_ptr<Process> daemons_[kGpus];
  std::unique_ptr<Process> up_;

 private:
  // Does not wait until the daemon serves, so that several can start at once.
  void LaunchDaemonOn(int gpu, std::vector<std::string> flags);
  std::vector<std::string> PlannedFlags(int gpu) const;
  void WritePlannedFleet();
  bool Answers(int model);

  uint16_t first_ports_[kModels] = {};  // of the place on the first GPU
  std::vector<std::unique_ptr<AnswerLoad>> loads_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PLANNING_PLANNING_SITE_H_
