#include "tests/integration/ranks/group_site.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

// True if the process has ended, even if it is still a zombie.
bool HasEnded(const driver::Descriptor& process) {
  pollfd ended = {process.get(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

}  // namespace

bool GroupEngine::FindRanks() {
  std::istringstream words(parent_->ReadLineWith("ranks"));
  std::string word;
  words >> word;
  ranks_.clear();
  for (pid_t pid; words >> pid;) {
    ranks_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
  return !ranks_.empty();
}

bool GroupEngine::AwaitReady() {
  return FindRanks() && !parent_->ReadLineWith("ready").empty();
}

void GroupEngine::SignalRank(size_t rank, int signal) {
  syscall(SYS_pidfd_send_signal, ranks_[rank].get(), signal, nullptr, 0);
}

bool GroupEngine::EventuallyEnds() {
  return Eventually([&] {
    return !parent_->alive() &&
           std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
             return rank.get() < 0 || HasEnded(rank);
           });
  });
}

int64_t GroupEngine::Stat(const std::string& figure) {
  return stage::FigureIn(parent_->Ask("stats"), figure);
}

void GroupSite::SetUp() {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs several GPUs";
  seed_ = static_cast<unsigned>(process::FromEnvironment(
      "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
  printf("FINESERVE_SEED=%u\n", seed_);
  random_.seed(seed_);
  Set("EMUCUDA_DEVICES", std::to_string(gpus()));
  for (int gpu = 0; gpu < gpus(); ++gpu) StartPool(gpu);
}

std::vector<std::string> GroupSite::PoolOptions(int gpu) const {
  return {"--pool", absl::StrCat(2 * pool_slabs_[gpu], "MiB")};
}

void GroupSite::StartPool(int gpu) {
  daemons_[gpu] = StartDaemon(
      With(PoolOptions(gpu),
           {"--gpu", absl::StrCat("emulated:", gpu), "--slab", "2MiB"}));
  const std::string uuid = process::GpuInLog(daemons_[gpu]->Stderr());
  ASSERT_NE(uuid, "") << daemons_[gpu]->Stderr();
  sockets_[gpu] = folder() + "/run/" + uuid + ".sock";
}

// Returns a random environment, in which some of an engine's writes come late,
// and some after its death.
Process::Environment GroupSite::RandomEngine(const std::string& name) {
  Process::Environment environment = {{"FINESERVE_ENGINE", name}};
  if (random_() % 2 == 0) {
    environment["EMUCUDA_STREAM_DELAY_US"] = std::to_string(random_() % 1000);
    environment["EMUCUDA_LINGER_MS"] = std::to_string(random_() % 100);
  }
  return environment;
}

std::unique_ptr<GroupEngine> GroupSite::Launch(
    const std::string& gpus, std::vector<std::string> arguments,
    Process::Environment more) {
  const std::string seed = std::to_string(++started_);
  const std::string name = "group-" + seed;
  more.merge(RandomEngine(name));
  arguments.insert(arguments.begin(), {"group_engine", "--gpus", gpus,
                                       "--random", "--seed", seed});
  return std::make_unique<GroupEngine>(
      name, LaunchPreloaded(std::move(arguments), std::move(more)));
}

std::unique_ptr<GroupEngine> GroupSite::LaunchGroup(const std::string& gpus) {
  return Launch(gpus, {}, {});
}

std::unique_ptr<GroupEngine> GroupSite::StartEvictableGroup(
    const std::string& gpus) {
  auto engine = Launch(gpus, {"--weights", "8"}, {{"FINESERVE_EVICT", "auto"}});
  EXPECT_TRUE(engine->AwaitReady()) << engine->parent().Stderr();
  return engine;
}

std::unique_ptr<GroupEngine> GroupSite::StartGroup(const std::string& gpus) {
  auto engine = LaunchGroup(gpus);
  EXPECT_TRUE(engine->AwaitReady()) << engine->parent().Stderr();
  return engine;
}

void GroupSite::StartPlain() {
  const std::string seed = std::to_string(++started_);
  plain_name_ = "plain-" + seed;
  plain_ = StartRandomView(plain_name_,
                           Words("--page 65536 --watermark 64 --seed " + seed),
                           RandomEngine(plain_name_));
}

uint64_t GroupSite::SlabsHeld(int gpu, const std::string& name) {
  uint64_t held = 0;
  for (const abi::EngineSnapshot& engine : TableOf(gpu).engines) {
    if (engine.name == name) held += engine.slabs_held;
  }
  return held;
}

bool GroupSite::EventuallyHoldsNothing(const std::string& name) {
  return Eventually([&] {
    uint64_t held = 0;
    for (int gpu = 0; gpu < gpus(); ++gpu) held += SlabsHeld(gpu, name);
    return held == 0;
  });
}

bool GroupSite::EventuallyAllFree() {
  return Eventually([&] {
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      for (const abi::SlabSnapshot& slab : TableOf(gpu).slabs) {
        if (slab.word.state != abi::SlabState::kFree) return false;
      }
    }
    return true;
  });
}

bool GroupSite::Trade(const std::vector<GroupEngine*>& engines) {
  std::vector<uint64_t> returned;
  std::vector<int64_t> gained;
  for (size_t gpu = 0; gpu < sockets_.size(); ++gpu) {
    returned.push_back(Returned(static_cast<int>(gpu)));
  }
  for (GroupEngine* engine : engines) gained.push_back(engine->Stat("gained"));
  const bool trades = Eventually([&] {
    for (size_t gpu = 0; gpu < returned.size(); ++gpu) {
      if (Returned(static_cast<int>(gpu)) <= returned[gpu]) return false;
    }
    for (size_t i = 0; i < engines.size(); ++i) {
      if (engines[i]->Stat("gained") <= gained[i]) return false;
    }
    return true;
  });
  for (GroupEngine* engine : engines) {
    EXPECT_TRUE(trades) << engine->parent().Ask("stats");
  }
  return trades;
}

bool GroupSite::Moves(GroupEngine* engine) {
  const int64_t gained = engine->Stat("gained");
  const int64_t steps = engine->Stat("steps");
  return gained >= 0 && Eventually([&] {
           const int64_t now = engine->Stat("gained");
           return now < 0 || (now > gained && engine->Stat("steps") > steps);
         });
}

}  // namespace fineserve::integration
