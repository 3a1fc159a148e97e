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

// The plan as fsctl shows it. An engine's state is "off", "start", "serve" or
// "retire", by its name.
struct SeenPlan {
  std::string leader;  // UUID of its GPU; empty: there is no leader
  std::map<std::string, std::string> states;
};

// A place of a model.
struct PlaceOf {
  int model = 0;
  int gpu = 0;
};

// Two GPUs with a daemon each, three models that may run on either, one proxy,
// and fsctl up. By what the models' profiles say, a GPU has KV for one busy
// model beside idle ones, but not for two: its pool has 64 MiB, and a busy
// model of the load below can use all of it. So whichever two models are
// busiest, the leader must bring them apart.
class PlanningSite : public ServingSite {
 protected:
  ~PlanningSite() override;
  void SetUp() override;

  // Everything, until each model is served.
  void StartAll();
  void StartDaemonOn(int gpu);
  // Further flags of a daemon's command line.
  virtual std::vector<std::string> FlagsOfDaemon(int gpu) const { return {}; }
  // True if places that are off keep their processes, off the GPU.
  virtual bool PlacesRest() const { return false; }
  // The machine's memory by the fleet file, where each engine's processes take
  // a GiB; 0: it names neither.
  virtual int HostGib() const { return 0; }
  // Between two moves.
  virtual int CoolDownSeconds() const { return 1; }
  void StartUp();

  // The plan as fsctl plan shows it; null without a daemon that answers, or
  // without a plan.
  std::optional<SeenPlan> See();
  // The GPU where it serves by the plan; -1 if that is not exactly one.
  static int ServingGpu(const SeenPlan& plan, int model);
  // The place that is in this state, if there is one.
  static std::optional<PlaceOf> In(const SeenPlan& plan,
                                   const std::string& state);
  // Pins the model to the GPU and has the plan's moves made now. False if fsctl
  // refuses either.
  bool OrderMove(int model, int gpu);
  // Waits for a plan with a place in this state.
  std::optional<PlaceOf> AwaitState(const std::string& state);

  // True if each model has one place that serves and no other that runs, by the
  // plan and (unless places rest) as processes, and answers through the proxy.
  bool IsSettled();
  bool Settles();

  // Asks both models without pause until EndLoads: short answers, a part of
  // them streamed, and long ones, of which one has seconds to go at any time:
  // an engine that is to retire has work for longer than a look at the plan
  // takes on a busy machine.
  void BeginLoads(int a, int b);
  void EndLoads();
  int Count(Ending ending) const;
  // Requests that run at once for a model under load.
  static constexpr int kClients = 5;
  static constexpr int kLongAnswers = 3;

  // Two models that serve on one GPU: of three, two must. And the third one.
  struct Neighbours {
    int a = 0, b = 0, other = 0;
  };
  Neighbours FindNeighbours();

  static std::string EngineName(PlaceOf place);
  pid_t PidOf(PlaceOf place) const;
  // Kills the process of the place, once there is one.
  void KillEngine(PlaceOf place);
  int GpuWithUuid(const std::string& uuid) const;

  static constexpr std::chrono::seconds kConvergence{60};

  const TinyModel models_[kModels] = {TinyModel("a"), TinyModel("b"),
                                      TinyModel("c")};
  std::string gpus_[kGpus];  // UUIDs
  std::unique_ptr<Process> daemons_[kGpus];
  std::unique_ptr<Process> up_;

 private:
  // Without waiting until it serves, so that several can start at once.
  void LaunchDaemonOn(int gpu, std::vector<std::string> flags);
  std::vector<std::string> PlannedFlags(int gpu) const;
  void WritePlannedFleet();
  bool Answers(int model);

  uint16_t first_ports_[kModels] = {};  // of the place on the first GPU
  std::vector<std::unique_ptr<AnswerLoad>> loads_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PLANNING_PLANNING_SITE_H_
