#include "tests/integration/planning/planning_site.h"

#include <signal.h>
#include <stdlib.h>

#include "tests/integration/planning/planned_model.h"
#include "tests/integration/planning/running_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::integration {
namespace {

// Enough for each model's engine to start beside the two others.
constexpr char kDeviceMemory[] = "1GiB";
// Larger than tinyserve's, which leases so little that no load of a test would
// fill a GPU. Admission uses the format that the engine registers.
constexpr uint32_t kTokenBytes = 1 << 17;

// Expected rates of the first model and the two others, in requests/s. The
// leader should find a place for each model before any request arrives.
constexpr double kExpectedRates[] = {4, 0.2, 0.2};

}  // namespace

PlanningSite::~PlanningSite() {
  EndLoads();
  if (up_ != nullptr && up_->alive()) {
    up_->EndBy(SIGTERM);
  }
  // If fsctl up is killed, its engines keep running.
  for (int model = 0; model < kModels; ++model) {
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const pid_t pid = PidOf({model, gpu});
      if (pid != 0) kill(pid, SIGKILL);
    }
  }
}

void PlanningSite::SetUp() {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two GPUs";
  Set("EMUCUDA_DEVICES", std::to_string(kGpus));
  Set("EMUCUDA_MEMORY", kDeviceMemory);
}

void PlanningSite::StartAll() {
  for (int gpu = 0; gpu < kGpus; ++gpu) LaunchDaemonOn(gpu, {});
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    AwaitDaemon(daemons_[gpu].get());
    gpus_[gpu] = process::GpuInLog(daemons_[gpu]->Stderr());
    daemons_[gpu].reset();
  }
  for (const TinyModel& model : models_) {
    WritePlannedProfile(model.model(), kTokenBytes, folder());
  }
  WritePlannedFleet();
  for (int gpu = 0; gpu < kGpus; ++gpu) LaunchDaemonOn(gpu, PlannedFlags(gpu));
  StartUp();
  StartProxy();
  for (int gpu = 0; gpu < kGpus; ++gpu) AwaitDaemon(daemons_[gpu].get());
  ASSERT_TRUE(Settles());
}

void PlanningSite::LaunchDaemonOn(int gpu, std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--gpu", "emulated:" + std::to_string(gpu)});
  daemons_[gpu] = LaunchDaemon(flags);
}

std::vector<std::string> PlanningSite::PlannedFlags(int gpu) const {
  std::vector<std::string> flags = FlagsOfDaemon(gpu);
  flags.insert(flags.end(), {"--fleet", fleet_path()});
  return flags;
}

void PlanningSite::StartDaemonOn(int gpu) {
  LaunchDaemonOn(gpu, PlannedFlags(gpu));
  AwaitDaemon(daemons_[gpu].get());
}

void PlanningSite::StartUp() { up_ = LaunchUp(); }

void PlanningSite::WritePlannedFleet() {
  stage::FleetText file;
  file.Proxy({{"without_daemon", "fail_open"}});
  stage::TomlKeys planner = {
      {"period", 1}, {"window", 3}, {"least_gain", 0.2},
      {"start", 30}, {"drain", 20}, {"cool_down", CoolDownSeconds()}};
  if (HostGib() != 0) {
    planner.emplace_back("host_memory", std::to_string(HostGib()) + "GiB");
  }
  file.Table("[planner]", planner);
  for (int m = 0; m < kModels; ++m) {
    first_ports_[m] = process::FreePorts(kGpus);
    const std::string name = models_[m].model();
    stage::TomlKeys of_model = PlannedKeys(name, kExpectedRates[m]);
    if (HostGib() != 0) of_model.emplace_back("process", "1GiB");
    file.Model(name, of_model);
    std::vector<std::string> command =
        PlannedCommand(Program("tinyserve"), name);
    stage::TomlKeys keys = {
        {"gpus", std::vector<std::string>(gpus_, gpus_ + kGpus)}};
    if (PlacesRest()) {
      keys.emplace_back("evict", "auto");
      command = process::With(command, {"--view", "--weights", "16MiB"});
    }
    keys.emplace_back("command", command);
    file.Engine(name, name, first_ports_[m], keys);
  }
  file.WriteTo(fleet_path());
}

std::optional<SeenPlan> PlanningSite::See() {
  const std::string json = Fsctl({"plan", "--json"}).out;
  if (!IsJson(json) || JsonAt(json, "/number") == "null") return std::nullopt;
  SeenPlan plan;
  plan.leader = JsonText(json, "/leader");
  for (int i = 0;; ++i) {
    const std::string place = "/places/" + std::to_string(i);
    const std::string engine = JsonText(json, place + "/engine");
    if (engine.empty()) return plan;
    plan.states[engine] = JsonText(json, place + "/state");
  }
}

std::string PlanningSite::EngineName(PlaceOf place) {
  return std::string(1, static_cast<char>('a' + place.model)) + "-" +
         std::to_string(place.gpu);
}

int PlanningSite::ServingGpu(const SeenPlan& plan, int model) {
  int found = -1;
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const auto state = plan.states.find(EngineName({model, gpu}));
    if (state == plan.states.end() || state->second != "serve") continue;
    if (found >= 0) return -1;
    found = gpu;
  }
  return found;
}

std::optional<PlaceOf> PlanningSite::In(const SeenPlan& plan,
                                        const std::string& state) {
  for (int model = 0; model < kModels; ++model) {
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const auto found = plan.states.find(EngineName({model, gpu}));
      if (found != plan.states.end() && found->second == state) {
        return PlaceOf{model, gpu};
      }
    }
  }
  return std::nullopt;
}

std::optional<PlaceOf> PlanningSite::AwaitState(const std::string& state) {
  std::optional<PlaceOf> found;
  process::BecomesTrue(
      [&] {
        const auto plan = See();
        if (plan) found = In(*plan, state);
        return found.has_value();
      },
      kConvergence);
  return found;
}

bool PlanningSite::OrderMove(int model, int gpu) {
  const std::string pin = models_[model].model() + "=" + gpus_[gpu];
  return Fsctl({"plan", "--pin", pin}).code == 0 &&
         Fsctl({"plan", "--apply"}).code == 0;
}

bool PlanningSite::Answers(int model) {
  const HttpResponse answer = HttpClient(port()).Ask(
      "POST", "/v1/completions", models_[model].Body("hello", 5));
  return answer.status == 200 &&
         TextOf(answer) == models_[model].Expected("hello", 5);
}

bool PlanningSite::IsSettled() {
  const auto plan = See();
  if (!plan || plan->leader.empty() || In(*plan, "start") ||
      In(*plan, "retire")) {
    return false;
  }
  for (int model = 0; model < kModels; ++model) {
    const int serving = ServingGpu(*plan, model);
    if (serving < 0) return false;
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const bool runs = PidOf({model, gpu}) != 0;
      if (gpu == serving ? !runs : runs && !PlacesRest()) return false;
    }
    if (!Answers(model)) return false;
  }
  return true;
}

bool PlanningSite::Settles() {
  return process::BecomesTrue([this] { return IsSettled(); }, kConvergence);
}

void PlanningSite::BeginLoads(int a, int b) {
  for (const int model : {a, b}) {
    loads_.push_back(std::make_unique<AnswerLoad>(
        models_[model], port(), kClients - kLongAnswers,
        AnswerLoad::Shape{50, 20, /*mixed=*/true}));
    loads_.push_back(std::make_unique<AnswerLoad>(
        models_[model], port(), kLongAnswers, AnswerLoad::Shape{50, 800}));
  }
}

void PlanningSite::EndLoads() {
  for (const auto& load : loads_) load->AskNoMore();
  for (const auto& load : loads_) load->End();
}

int PlanningSite::Count(Ending ending) const {
  int count = 0;
  for (const auto& load : loads_) count += load->Count(ending);
  return count;
}

PlanningSite::Neighbours PlanningSite::FindNeighbours() {
  const auto plan = See();
  for (int other = 0; plan && other < kModels; ++other) {
    const int a = (other + 1) % kModels, b = (other + 2) % kModels;
    if (ServingGpu(*plan, a) == ServingGpu(*plan, b)) return {a, b, other};
  }
  ADD_FAILURE() << "no two models serve on one GPU";
  return {0, 1, 2};
}

pid_t PlanningSite::PidOf(PlaceOf place) const {
  if (first_ports_[place.model] == 0) return 0;
  return TinyserveOn(
      static_cast<uint16_t>(first_ports_[place.model] + place.gpu));
}

void PlanningSite::KillEngine(PlaceOf place) {
  pid_t pid = 0;
  ASSERT_TRUE(Eventually([&] { return (pid = PidOf(place)) != 0; }))
      << EngineName(place);
  EXPECT_TRUE(process::SignalOne(pid, SIGKILL));
}

int PlanningSite::GpuWithUuid(const std::string& uuid) const {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    if (gpus_[gpu] == uuid) return gpu;
  }
  ADD_FAILURE() << "no GPU " << uuid;
  return 0;
}

}  // namespace fineserve::integration
