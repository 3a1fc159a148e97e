#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/daemons/ask_daemons.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/models/models_output.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using Clock = std::chrono::steady_clock;

struct DrainOptions {
  std::string target;   // an engine, a GPU or a machine
  bool all = false;     // every engine, instead
  bool undo = false;    // let it accept requests again
  uint32_t wait_s = 0;  // return once they run nothing, at most so late
};

constexpr std::chrono::seconds kPatience(5);

// The daemon that `gpu` names, as --gpu does.
absl::StatusOr<FleetDaemon> FindDaemon(const std::string& gpu) {
  const absl::StatusOr<Pool> pool = ChooseAnsweringPool(gpu);
  if (!pool.ok()) return pool.status();
  const std::string path = finding::AdmissionPath(pool->socket);
  if (access(path.c_str(), F_OK) != 0) {
    return absl::NotFoundError(
        "this fineserved has no fleet and admits no requests; start it with "
        "--fleet FILE");
  }
  return FleetDaemon{finding::GpuOfSocket(path), path, {}, ""};
}

// Asks the daemons of every machine: merges their answers, and names on stderr
// the daemons that do not answer.
template <typename Question, typename Answer, typename Show>
int AskThese(const std::vector<FleetDaemon>& daemons, Question question,
             Answer* (wire::BodyUnion::*as)(), const Show& show) {
  auto messages =
      AskDaemons(daemons, wire::Encode(0, 0, std::move(question)), kPatience);
  std::vector<Answer> answers;
  std::string refusal;
  int code = kExitOk;
  for (size_t i = 0; i < messages.size(); ++i) {
    auto& message = messages[i];
    Answer* answer = message.ok() ? (message->body.*as)() : nullptr;
    if (answer != nullptr) {
      answers.push_back(std::move(*answer));
    } else if (message.ok() && message->body.AsRefused() != nullptr) {
      refusal = message->body.AsRefused()->why;
    } else {
      code = Fail(kExitBadAnswer,
                  absl::StrCat("warning: ", daemons[i].gpu, ": ",
                               message.ok() ? "an answer of the wrong kind"
                                            : message.status().message()));
    }
  }
  if (answers.empty()) {
    // A silent daemon may know what the others do not know.
    const bool all_answered = code == kExitOk;
    if (refusal.empty()) return kExitNoDaemon;
    return Fail(all_answered ? kExitUsage : kExitNoDaemon, refusal);
  }
  show(Merged(std::move(answers)));
  return code;
}

template <typename Question, typename Answer, typename Show>
int AskAll(const Globals& globals, Question question,
           Answer* (wire::BodyUnion::*as)(), const Show& show) {
  const auto daemons = FindFleetDaemons(globals.gpu);
  if (!daemons.ok()) return FailWithoutPool(daemons.status());
  return AskThese(*daemons, std::move(question), as, show);
}

// Sends `question` to the daemon and shows its answer, which is the member `as`
// of the message. Returns the exit code.
template <typename Question, typename Answer, typename Show>
int Ask(const Globals& globals, Question question,
        Answer* (wire::BodyUnion::*as)(), const Show& show) {
  if (IsOneOfSeveral() && !finding::IsSocketPath(globals.gpu)) {
    return AskAll(globals, std::move(question), as, show);
  }
  const absl::StatusOr<FleetDaemon> daemon = FindDaemon(globals.gpu);
  if (!daemon.ok()) return FailWithoutPool(daemon.status());
  absl::StatusOr<wire::MessageT> message = std::move(
      AskDaemons({*daemon}, wire::Encode(0, 0, std::move(question)), kPatience)
          .front());
  if (!message.ok()) return FailWithoutPool(message.status());
  if (const wire::RefusedT* refused = message->body.AsRefused()) {
    return Fail(kExitUsage, refused->why);
  }
  const Answer* answer = (message->body.*as)();
  if (answer == nullptr) {
    return Fail(kExitNoDaemon,
                "fineserved sent an answer of the wrong kind; see its log");
  }
  return show(*answer);
}

// As Ask, for questions that change nothing: asks all daemons unless one is
// chosen.
template <typename Question, typename Answer, typename Show>
int Look(const Globals& globals, Question question,
         Answer* (wire::BodyUnion::*as)(), const Show& show) {
  if (globals.gpu.empty()) {
    const auto daemons = FindFleetDaemons("");
    if (daemons.ok() && daemons->size() > 1) {
      return AskThese(*daemons, std::move(question), as, show);
    }
  }
  return Ask(globals, std::move(question), as, show);
}

FormerPools FormerPoolsOf(const std::string& gpu) {
  const absl::StatusOr<Pool> pool = ChoosePool(gpu);
  return pool.ok() ? abi::FindOldPools(pool->table.gpu_uuid, pool->table.epoch)
                   : FormerPools{};
}

bool IsGpu(const std::string& target) {
  return absl::StartsWith(target, "GPU-");
}

// Returns the number of requests that the engine runs; of all engines if
// `engine` is empty.
uint32_t RunningOn(const wire::ModelsT& models, const std::string& engine) {
  uint32_t running = 0;
  for (const auto& model : models.models) {
    for (const auto& its : model->engines) {
      if (engine.empty() || its->name == engine) running += its->running;
    }
  }
  return running;
}

// Waits until the engine (empty: every engine) runs nothing. Does not wait if
// `wait_s` is 0.
int AwaitQuiet(const Globals& globals, const std::string& engine,
               uint32_t wait_s) {
  const auto deadline = Clock::now() + std::chrono::seconds(wait_s);
  while (wait_s != 0) {
    uint32_t running = 0;
    bool counting = false;
    const int code =
        Ask(globals, wire::ModelsQueryT(), &wire::BodyUnion::AsModels,
            [&](const wire::ModelsT& models) {
              running = RunningOn(models, engine);
              counting = models.counting;
              return kExitOk;
            });
    if (code != kExitOk || (running == 0 && !counting)) return code;
    if (Clock::now() > deadline) {
      return Fail(
          kExitBadAnswer,
          running == 0
              ? absl::StrCat("after ", wait_s,
                             " s it is not known what "
                             "runs: a proxy has not said; see fsctl "
                             "status")
              : absl::StrCat(running, " requests still run after ", wait_s,
                             " s; give --wait more, or end "
                             "them with the engine"));
    }
    poll(nullptr, 0, 200);
  }
  return kExitOk;
}

// `moves`: whether the planner moves models away from the drained target.
int ShowDrained(const Globals& globals, const DrainOptions& options,
                const std::string& what, bool moves) {
  if (globals.json) return Print("{\"done\": true}\n");
  if (options.undo) return Print(what + ": new requests are accepted again\n");
  return Print(absl::StrCat(
      what, moves ? ": its models move elsewhere (see fsctl plan), and their "
                    "requests with them; what no planner plans gets no new "
                    "ones; --undo ends this\n"
                  : ": no new requests; running requests finish (see fsctl "
                    "models); --undo ends this\n"));
}

bool HasEngine(const wire::ModelsT& models, const std::string& name) {
  for (const auto& model : models.models) {
    for (const auto& engine : model->engines) {
      if (engine->name == name) return true;
    }
  }
  return false;
}

// Returns the GPUs of the daemons that answer and have an engine of this name.
std::vector<std::string> GpusOf(const std::vector<FleetDaemon>& daemons,
                                const std::string& engine) {
  const auto messages =
      AskDaemons(daemons, wire::Encode(0, 0, wire::ModelsQueryT()), kPatience);
  std::vector<std::string> gpus;
  for (size_t i = 0; i < daemons.size(); ++i) {
    const wire::ModelsT* reported =
        messages[i].ok() ? messages[i]->body.AsModels() : nullptr;
    if (reported != nullptr && HasEngine(*reported, engine)) {
      gpus.push_back(daemons[i].gpu);
    }
  }
  return gpus;
}

// Returns the GPU of the engine, if several daemons run and one of them has it;
// otherwise `gpu`.
std::string GpuOf(const std::string& gpu, const std::string& engine) {
  if (!gpu.empty() || IsOneOfSeveral()) return gpu;
  const auto daemons = FindFleetDaemons(gpu);
  if (!daemons.ok() || daemons->size() < 2) return gpu;
  const std::vector<std::string> gpus = GpusOf(*daemons, engine);
  return gpus.size() == 1 ? gpus[0] : gpu;
}

int DrainMachine(const Globals& globals, const DrainOptions& options) {
  auto daemons = FindFleetDaemons(globals.gpu);
  if (!daemons.ok()) return FailWithoutPool(daemons.status());
  if (!GpusOf(*daemons, options.target).empty()) {
    return Fail(kExitUsage,
                absl::StrCat(options.target,
                             " is a machine and an engine; drain the machine "
                             "GPU by GPU, or give one of them another name"));
  }
  std::erase_if(*daemons, [&](const FleetDaemon& daemon) {
    return daemon.machine != options.target;
  });
  if (daemons->empty()) {
    return Fail(kExitNoDaemon,
                absl::StrCat("no fineserved of machine ", options.target,
                             " answers; see fsctl nodes"));
  }
  wire::DrainT drain;
  drain.on = !options.undo;
  drain.moves = true;
  return AskThese(*daemons, std::move(drain), &wire::BodyUnion::AsDone,
                  [&](const wire::DoneT&) {
                    return ShowDrained(globals, options,
                                       "machine " + options.target,
                                       /*moves=*/true);
                  });
}

int RunModels(const Globals& globals) {
  return Look(globals, wire::ModelsQueryT(), &wire::BodyUnion::AsModels,
              [&](const wire::ModelsT& models) {
                const FormerPools former = FormerPoolsOf(globals.gpu);
                return Print(globals.json
                                 ? ModelsJson(models, former)
                                 : ModelsText(models, globals.color, former));
              });
}

int RunDrain(const Globals& globals, const DrainOptions& options) {
  if (options.all == !options.target.empty()) {
    return Fail(kExitUsage,
                "give drain one ENGINE, GPU or machine, or --all for every "
                "engine; see fsctl models and fsctl nodes for their names");
  }
  if (IsMachine(options.target)) {
    if (options.wait_s == 0) return DrainMachine(globals, options);
    return Fail(kExitUsage,
                "--wait is for engines and GPUs; drain the machine, and see "
                "fsctl models");
  }
  Globals where = globals;
  std::string what = "all engines";
  wire::DrainT drain;
  drain.on = !options.undo;
  drain.moves = IsGpu(options.target);
  if (drain.moves) {
    where.gpu = what = options.target;
  } else if (!options.all) {
    drain.engine = options.target;
    what = "engine " + options.target;
    where.gpu = GpuOf(globals.gpu, options.target);
  }
  const bool moves = drain.moves;
  const std::string engine = drain.engine;
  return Ask(where, std::move(drain), &wire::BodyUnion::AsDone,
             [&](const wire::DoneT&) {
               const int code = AwaitQuiet(where, engine, options.wait_s);
               return code == kExitOk
                          ? ShowDrained(globals, options, what, moves)
                          : code;
             });
}

}  // namespace

int PrintRequests(const Globals& globals, uint32_t most) {
  wire::RequestsQueryT query;
  query.most = most;
  return Look(globals, std::move(query), &wire::BodyUnion::AsRequests,
              [&](const wire::RequestsT& requests) {
                return Print(globals.json
                                 ? RequestsJson(requests)
                                 : RequestsText(requests, globals.color));
              });
}

void AddModels(Commands& c) {
  c.Add("models", "Show a fleet's models: queues, engines, SLOs",
        "  fsctl models\n"
        "  fsctl models --json | jq '.models[].engines[].kappa'\n",
        RunModels);
}

void AddDrain(Commands& c) {
  const auto [command, o] = c.Add(
      "drain", "Stop sending new requests to an engine, GPU or machine",
      "  fsctl drain llama-a             before you stop the engine\n"
      "  fsctl drain llama-a --wait 60   until it runs nothing\n"
      "  fsctl drain llama-a --undo\n"
      "  fsctl drain GPU-8f0c3f1e        its models move to other GPUs\n"
      "  fsctl drain rack1-m3            the same for each GPU of a machine\n"
      "  fsctl drain --all               every engine of this GPU\n",
      RunDrain);
  command->add_option("TARGET", o->target,
                      "Engine or machine in the fleet file, or a GPU's UUID "
                      "(GPU-...) or how it begins");
  command->add_flag("--all", o->all, "Drain every engine");
  CLI::Option* const undo =
      command->add_flag("--undo", o->undo, "Send requests again");
  command
      ->add_option("--wait", o->wait_s,
                   "Return once they run no request, or fail after so many "
                   "seconds")
      ->excludes(undo);
}

}  // namespace fineserve::fsctl
