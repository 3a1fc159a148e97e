// fsctl: looks at FineServe and starts engines under it. This file only
// registers commands and flags; the commands are in the folders beside it.

#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/cli/command_line.h"
#include "daemon/contract/abi/version.h"
#include "tools/fsctl/admission/admission_commands.h"
#include "tools/fsctl/apply/apply_commands.h"
#include "tools/fsctl/doctor/doctor.h"
#include "tools/fsctl/explain/explain.h"
#include "tools/fsctl/follow/follow_commands.h"
#include "tools/fsctl/geometry/geometry.h"
#include "tools/fsctl/keys/keys_command.h"
#include "tools/fsctl/limit/limit_command.h"
#include "tools/fsctl/look/look_commands.h"
#include "tools/fsctl/metrics/metrics_command.h"
#include "tools/fsctl/move/move_command.h"
#include "tools/fsctl/nodes/nodes_command.h"
#include "tools/fsctl/plan/plan_command.h"
#include "tools/fsctl/profile/profile_command.h"
#include "tools/fsctl/run/run_command.h"
#include "tools/fsctl/stack/stack_command.h"
#include "tools/fsctl/status/status_command.h"
#include "tools/fsctl/status/version_command.h"
#include "tools/fsctl/support/support.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/suggestion.h"
#include "tools/fsctl/terminal/text_table.h"
#include "tools/fsctl/upgrade/upgrade.h"
#include "tools/up/up_command.h"

namespace fineserve::fsctl {
namespace {

struct Commands {
  Globals globals;
  std::string color = "auto";
  SlabsOptions slabs;
  std::string slabs_by = "slab";
  TopOptions top;
  ExplainOptions explain;
  StackOptions stack;
  GeometryOptions geometry;
  PlanOptions plan;
  ProfileOptions profile;
  RunOptions run;
  RequestsOptions requests;
  FollowOptions follow;
  TraceOptions trace;
  std::string usage_admin;  // empty: of the proxy that runs here
  DrainOptions drain;
  LimitOptions limit;
  MoveOptions move;
  KeysOptions keys;
  UpOptions up;
  ApplyOptions apply;
  RestartOptions restart;
  StopOptions stop;
  LogsOptions logs;
  SupportOptions support;
  MetricsOptions metrics;
  UpgradeOptions upgrade;
  std::string doctor_engine;  // empty: the machine
  std::string helped;         // the command that help is wanted on
  std::string help;           // of fsctl itself
  std::function<int()> chosen;
};

// A command that will be carried out by `run`.
CLI::App* AddCommand(CLI::App& app, Commands& c, const char* name,
                     const char* what, const char* examples,
                     std::function<int()> run) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer(absl::StrCat("Examples:\n", examples,
                               "\nGlobal flags: --gpu, --json, --color; see "
                               "fsctl --help\n"));
  command->callback([&c, run = std::move(run)] { c.chosen = run; });
  return command;
}

// CLI11 does not know "--", so its usage line would omit the command.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "Usage: fsctl run [OPTIONS] -- COMMAND [ARGS...]\n";
  }
};

// The order with this name, which is one of kSlabOrders.
SlabOrder OrderNamed(const std::string& name) {
  return static_cast<SlabOrder>(
      std::find(std::begin(kSlabOrders), std::end(kSlabOrders), name) -
      std::begin(kSlabOrders));
}

void AddSlabs(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "slabs", "Show which engine holds which slab of the pool",
      "  fsctl slabs\n"
      "  fsctl slabs --all --gpu GPU-4a1f\n"
      "  fsctl slabs --by density        fullest slabs first\n"
      "  fsctl slabs --json | jq .states.free.bytes\n",
      [&c] {
        c.slabs.order = OrderNamed(c.slabs_by);
        return RunSlabs(c.globals, c.slabs);
      });
  command->add_flag("--all", c.slabs.all, "Print one line per slab");
  command
      ->add_option("--by", c.slabs_by,
                   "Sort by slab, state, format, engine, age or density "
                   "(default: slab)")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kSlabOrders),
                                                     std::end(kSlabOrders))));
}

void AddTop(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "top", "Watch the pool, its engines and models as they change",
      "  fsctl top                       q quits, s changes the order, ? "
      "helps\n"
      "  fsctl top --interval 0.5\n"
      "  fsctl top --once                print one frame as text\n"
      "  fsctl top --once --interval 0   print totals instead of rates\n"
      "  fsctl top --once --json | jq '.engines[].leased'\n",
      [&c] { return RunTop(c.globals, c.top); });
  command->add_option("--interval", c.top.interval_s,
                      "Seconds between updates (default: 1)");
  command->add_flag("--once", c.top.once, "Print one frame as text and exit");
}

void AddEngines(CLI::App& app, Commands& c) {
  AddCommand(app, c, "engines", "List the engines that share the pool",
             "  fsctl engines\n"
             "  fsctl engines --json | jq '.engines[].pids'\n",
             [&c] { return RunEngines(c.globals); });
}

void AddExplain(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "explain", "Show what the shim in a process decided, and why",
      "  fsctl explain llama-a\n"
      "  fsctl explain 4711 --last 0     print every recorded decision\n",
      [&c] { return RunExplain(c.globals, c.explain); });
  command
      ->add_option("ENGINE", c.explain.engine,
                   "Its name (fsctl engines), or a process id")
      ->required();
  command->add_option("--last", c.explain.last,
                      "Number of decisions to print, 0 for all (default: 20)");
}

void AddStack(CLI::App& app, Commands& c) {
  AddCommand(app, c, "stack", "Show where each thread of an engine is",
             "  fsctl stack llama-a\n"
             "  fsctl stack 4711\n"
             "  fsctl stack llama-a --json | jq '.processes[].summary'\n"
             "Native frames, and Python's functions (CPython 3.11 to 3.13), "
             "read from\n"
             "outside: each thread is stopped for the time that a copy takes, "
             "some 0.1 ms.\n",
             [&c] { return RunStack(c.globals, c.stack); })
      ->add_option("ENGINE", c.stack.engine,
                   "Its name (fsctl engines), or a process id")
      ->required();
}

void AddDoctor(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "doctor", "Check this machine or one process for problems",
      "  fsctl doctor\n"
      "  fsctl doctor llama-a            which hooks it uses, what bypasses "
      "them\n"
      "  fsctl doctor --json | jq '.checks[] | select(.result==\"FAIL\")'\n",
      [&c] {
        return c.doctor_engine.empty()
                   ? RunDoctor(c.globals)
                   : RunProcessDoctor(c.globals, c.doctor_engine);
      });
  command->add_option("ENGINE", c.doctor_engine,
                      "Engine to check instead of the machine: its name, or a "
                      "process id");
}

void AddGeometry(CLI::App& app, Commands& c) {
  GeometryOptions& o = c.geometry;
  CLI::App* command = AddCommand(
      app, c, "geometry", "Show how well block formats fit into slabs",
      "  fsctl geometry --pool 64GiB \\\n"
      "    --model 8b:layers=32,kv-heads=8,head-dim=128,precision=fp16 \\\n"
      "    --model 32b:layers=64,kv-heads=8,head-dim=128,precision=fp8\n"
      "  fsctl geometry --pool 64GiB --slab 512MiB "
      "--format planes=36,page=64KiB\n"
      "  fsctl geometry --running --format planes=36,page=64KiB,tokens=16\n"
      "\nA --model takes layers, kv-heads, head-dim, precision (fp32 fp16 bf16 "
      "fp8 int8\nfp4 int4), tp, quant-bytes (per block and layer), tokens (per "
      "block; default: 16)\nand layout (layers: one tensor per layer, the "
      "default; split: K and V apart;\npacked: all layers of a block "
      "together).\n",
      [&c] { return RunGeometry(c.globals, c.geometry); });
  command->add_option("--model", o.models,
                      "Model, as [NAME:]KEY=VALUE,...; repeatable");
  command->add_option(
      "--format", o.formats,
      "Block format, as [NAME:]planes=N,page=SIZE[,tokens=N]; repeatable");
  command->add_option("--pool", o.pool, "Size of the pool");
  command->add_option("--slab", o.slab,
                      "Evaluate slabs of this size instead of searching");
  command->add_option("--granule", o.granule, "Size of a granule, with --slab");
  command->add_flag("--running", o.running,
                    "Evaluate the pool of the running daemon");
  command->add_option(
      "--engines", o.engines,
      "Number of engines that hold slabs at once (default: one per format)");
  command->add_option("--granularity", o.granularity,
                      "Allocation granularity of the driver (default: 2MiB)");
  command
      ->add_option("--max-handles", o.max_handles,
                   "Maximum number of memory handles in the pool")
      ->check(CLI::PositiveNumber);
  command->add_flag("--all", o.all, "List every cut worth considering");
}

// Adds the options that `fsctl plan` takes without a file.
void AddLivePlan(CLI::App* command, LivePlanOptions* o) {
  const char* kGroup = "The plan in force";
  command
      ->add_option("--history", o->history,
                   "Show the last plans and why they were made (default: 20)")
      ->expected(0, 1)
      ->default_str("20")
      ->check(CLI::Range(1, 100'000))
      ->option_text("[N]")
      ->group(kGroup);
  command->add_flag("--freeze", o->steer.freeze, "Let no model move")
      ->group(kGroup);
  command->add_flag("--thaw", o->steer.thaw, "Let models move again")
      ->group(kGroup);
  command
      ->add_flag("--apply", o->steer.apply,
                 "Make the best plan's moves now, however small their gain")
      ->group(kGroup);
  command
      ->add_option("--pin", o->steer.pin,
                   "Keep a model on a GPU: a UUID or its beginning")
      ->option_text("MODEL=GPU")
      ->group(kGroup);
  command->add_option("--unpin", o->steer.unpin, "Let a model move again")
      ->option_text("MODEL")
      ->group(kGroup);
}

void AddPlan(CLI::App& app, Commands& c) {
  PlanOptions& o = c.plan;
  CLI::App* command = AddCommand(
      app, c, "plan",
      "Show and steer which model runs on which GPU, or plan it from a file",
      "  fsctl plan                      the plan in force\n"
      "  fsctl plan --history\n"
      "  fsctl plan --freeze             no model moves until --thaw\n"
      "  fsctl plan --pin chat=GPU-8f0c\n"
      "  fsctl plan cluster.toml\n"
      "  fsctl plan cluster.toml --explain chat\n"
      "  fsctl plan cluster.toml --what-if rate:chat=2x --what-if gpus=-1\n"
      "  fsctl plan cluster.toml --policy prism --json\n"
      "  fsctl plan cluster.toml --svg plan.svg\n"
      "The file lists GPUs, profiles and models; man fsctl shows one.\n",
      [&c] { return RunPlan(c.globals, c.plan); });
  CLI::Option* file =
      command->add_option("FILE", o.file,
                          "What to plan (TOML; default: show the plan in "
                          "force)");
  const char* kGroup = "With FILE";
  const auto of_file = [&](CLI::Option* option) {
    return option->needs(file)->group(kGroup);
  };
  of_file(command->add_option("--policy", o.policy,
                              "Placement policy (default: fineserve-opt)"));
  of_file(command->add_option("--footprint", o.footprint,
                              "Base footprint of the paper or of the released "
                              "code (default: paper)"))
      ->check(CLI::IsMember({"paper", "released"}));
  of_file(command->add_option("--kvpr", o.kvpr,
                              "Prism's pressure ratio: v1 or v3 (default: v1)"))
      ->check(CLI::IsMember({"v1", "v3"}));
  of_file(command->add_option("--explain", o.explain,
                              "Say why this model is placed where it is"));
  of_file(command->add_option("--what-if", o.what_if,
                              "Change what is planned: rate:MODEL=2x, gpus=-1 "
                              "or add:MODEL; repeatable"))
      ->allow_extra_args(false);
  of_file(command->add_option("--svg", o.svg_path,
                              "Draw the GPUs' memory to a file"));
  AddLivePlan(command, &o.live);
}

// Adds the options for the parts of a profile file that are not measured.
void AddTold(CLI::App* command, ProfileOptions* o) {
  const char* kGroup = "For the file, since it cannot be measured";
  command->add_option("--architecture", o->architecture, "Such as llama-3.1-8b")
      ->group(kGroup);
  command->add_option("--quantisation", o->quantisation, "Such as fp16, awq")
      ->group(kGroup);
  command->add_option("--tp", o->tp, "GPUs that it spans (default: 1)")
      ->check(CLI::Range(1, 1024))
      ->group(kGroup);
  command->add_option("--weights", o->weights, "Size on all GPUs, like 15GiB")
      ->group(kGroup);
  command->add_option("--activations", o->activations, "Their average size")
      ->group(kGroup);
  command
      ->add_option("--kv-token-bytes", o->kv_token_bytes,
                   "KV bytes of a token over all layers")
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
}

void AddProfile(CLI::App& app, Commands& c) {
  ProfileOptions& o = c.profile;
  CLI::App* command = AddCommand(
      app, c, "profile", "Measure how long an engine's steps take",
      "  fsctl profile http://127.0.0.1:9001 --output llama.toml\n"
      "  fsctl profile http://127.0.0.1:9001 --batches 1,8 --prompts 64,512\n"
      "  fsctl profile http://127.0.0.1:9001 --json | jq .profile\n"
      "The engine must be idle. Any that speaks OpenAI's HTTP will do; a "
      "fleet\n"
      "file reads the output by profile = \"llama.toml\".\n",
      [&c] { return RunProfile(c.globals, c.profile); });
  command->add_option("URL", o.url, "The engine, as http://HOST:PORT")
      ->required();
  command->add_option("--model", o.model,
                      "Model to ask for (default: the only one)");
  command
      ->add_option("--batches", o.batches,
                   "Prompts at once (default: 1,2,4,8,16,32)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--prompts", o.prompts,
                   "Tokens of a prompt (default: 64,256,1024)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--output", o.output_path, "File to write");
  command
      ->add_option("--budget", o.budget_s,
                   "Seconds to measure for, at most (default: 300)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--chunk-tokens", o.chunk_tokens,
                   "Prompt tokens that the engine fills in a step (default: "
                   "what fits best)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--api-key-file", o.api_key_path,
                      "File whose first line is the engine's API key");
  command->add_flag("--chat", o.chat, "Ask for chats instead of completions");
  command->add_flag("--even-if-busy", o.even_if_busy,
                    "Measure although other requests run");
  AddTold(command, &o);
}

void AddRun(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "run", "Run a command with its KV memory in the pool",
      "  fsctl run -- vllm serve Qwen/Qwen3-8B       shares slab by slab\n"
      "  fsctl run --no-view -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl run --name chat --kv-size 512MiB -- ./engine --port 8000\n"
      "The command chooses its GPU as usual (CUDA_VISIBLE_DEVICES). If no\n"
      "fineserved runs, one is started for the first GPU that CUDA shows:\n"
      "fineserved --pool auto, in the background, until it is stopped.\n",
      [&c] { return RunRun(c.globals, c.run); });
  command->formatter(std::make_shared<RunFormatter>());
  command->add_option("--name", c.run.name,
                      "Engine name; processes with one name form one engine");
  command->add_flag("--no-daemon", c.run.no_daemon,
                    "Start no fineserved if none runs");
  command
      ->add_option("--kv-size", c.run.kv_sizes,
                   "Treat allocations of this size, e.g. 512MiB, as KV; "
                   "repeatable")
      ->expected(1);
  CLI::Option* view =
      command
          ->add_flag("--view{required}", c.run.view,
                     "Share the pool slab by slab through the engine's plugin; "
                     "vLLM and SGLang do by default; =required (default) does "
                     "not start without a daemon, =1 does")
          ->check(CLI::IsMember({"required", "1"}));
  command
      ->add_flag("--no-view", c.run.no_view,
                 "Hold whole allocations in the pool, vLLM and SGLang too")
      ->excludes(view);
  command->add_flag("--evict", c.run.may_evict,
                    "Let what it keeps on the GPU leave for the host's memory "
                    "(fsctl evict)");
}

void AddDrainTime(CLI::App* command, double* drain_s) {
  command
      ->add_option("--drain", *drain_s,
                   "Seconds that an engine may take to answer what it runs "
                   "before it is stopped (default: 300)")
      ->check(CLI::Range(0, 86'400));
}

// `what`: that the engines do.
void AddTimeout(CLI::App* command, double* timeout_s,
                const char* what = "serve") {
  command
      ->add_option("--timeout", *timeout_s,
                   absl::StrCat("Seconds to wait until the engines ", what,
                                " (default: 600)"))
      ->check(CLI::Range(1, 86'400));
}

// Adds the options for how long a draining engine, and a starting one, may
// take.
void AddDrainTimes(CLI::App* command, double* drain_s, double* timeout_s) {
  AddDrainTime(command, drain_s);
  AddTimeout(command, timeout_s);
}

void AddUp(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "up", "Start a fleet's engines and keep them running",
      "  fsctl up fleet.toml             Ctrl-C stops all engines\n"
      "  fsctl up fleet.toml --logs /var/log/fineserve\n"
      "  fsctl up fleet.toml --json      print one JSON object per line\n"
      "  fsctl up fleet.toml --mps       run the engines' kernels "
      "concurrently\n"
      "  fsctl up fleet.toml --dry-run   each engine's command, with what is "
      "filled in\n"
      "fineserved must be running. fineserve-proxy reads the same file.\n",
      [&c] { return RunUp(c.globals, c.up); });
  command->add_option("FILE", c.up.fleet_path, "Fleet file (TOML)")->required();
  command->add_option("--logs", c.up.log_folder,
                      "Folder for the engines' output (default: the runtime "
                      "folder)");
  command->add_flag("--dry-run", c.up.dry_run,
                    "Show what would be started, and start nothing");
  command->add_flag("--keep-orphans", c.up.keep_orphans,
                    "Do not restart engines that a daemon's end has left in "
                    "a former pool");
  command->add_flag("--timestamps", c.up.timestamps,
                    "Begin each line with the time (UTC)");
  command->add_flag("--mps", c.up.mps,
                    "Run the engines under NVIDIA MPS: kernels run "
                    "concurrently, but a fatal fault of one engine ends all");
}

void AddApply(CLI::App& app, Commands& c) {
  ApplyOptions& o = c.apply;
  CLI::App* command = AddCommand(
      app, c, "apply", "Make a running fleet follow its changed file",
      "  fsctl apply fleet.toml          shows what changes, and asks\n"
      "  fsctl apply fleet.toml --dry-run\n"
      "  fsctl apply fleet.toml --yes --drain 60\n"
      "  fsctl apply fleet.toml --dry-run --json | jq '.changes[].section'\n"
      "fineserved, fineserve-proxy and fsctl up take it, all or none; what "
      "did\n"
      "not change is not restarted.\n",
      [&c] { return RunApply(c.globals, c.apply); });
  command->add_option("FILE", o.fleet_path, "Fleet file (TOML)")->required();
  command->add_flag("--yes", o.yes, "Do not ask");
  command->add_flag("--dry-run", o.dry_run, "Show what would happen");
  AddDrainTimes(command, &o.drain_s, &o.timeout_s);
}

void AddRestart(CLI::App& app, Commands& c) {
  RestartOptions& o = c.restart;
  CLI::App* command = AddCommand(
      app, c, "restart", "Drain engines of fsctl up and start them again",
      "  fsctl restart llama-a\n"
      "  fsctl restart llama-a llama-b --rolling   one at a time\n"
      "  fsctl restart --rolling                   all engines\n",
      [&c] { return RunRestart(c.globals, c.restart); });
  command->add_option("ENGINE", o.engines, "Engine names in the fleet file");
  command->add_flag("--rolling", o.rolling,
                    "One at a time, each when the one before serves");
  AddDrainTimes(command, &o.drain_s, &o.timeout_s);
}

void AddStop(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "stop", "Drain engines of fsctl up and let them stay down",
      "  fsctl stop llama-a\n"
      "  fsctl stop llama-a --drain 0    at once, whatever it runs\n"
      "They stay down, with the next fsctl up, too, until fsctl start.\n",
      [&c] { return RunStop(c.globals, c.stop); });
  command
      ->add_option("ENGINE", c.stop.engines, "Engine names in the fleet file")
      ->required();
  AddDrainTime(command, &c.stop.drain_s);
  AddTimeout(command, &c.stop.timeout_s, "have stopped");
}

void AddStart(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "start", "Start engines of fsctl up that were stopped",
      "  fsctl start llama-a\n"
      "One that starts on request, or as a plan says, does so again.\n",
      [&c] { return RunStart(c.globals, c.stop); });
  command
      ->add_option("ENGINE", c.stop.engines, "Engine names in the fleet file")
      ->required();
  AddTimeout(command, &c.stop.timeout_s);
}

void AddLogs(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "logs", "Print the end of an engine's log, or follow it",
      "  fsctl logs llama-a\n"
      "  fsctl logs llama-a --follow\n"
      "  fsctl logs llama-a --lines 0 | grep -i error\n"
      "  fsctl logs llama-a --json | jq -r .path\n",
      [&c] { return RunLogs(c.globals, c.logs); });
  command
      ->add_option("ENGINE", c.logs.engine,
                   "Its name in the fleet file of a running fsctl up")
      ->required();
  command->add_option("-n,--lines", c.logs.lines,
                      "Number of lines, 0 for all (default: 50)");
  command->add_flag("-f,--follow", c.logs.follow,
                    "Go on with what is written, until Ctrl-C");
}

void AddStatus(CLI::App& app, Commands& c) {
  AddCommand(app, c, "status",
             "Show what is wrong, since when, and what mends it",
             "  fsctl status                    exit code 1 if anything is "
             "wrong\n"
             "  fsctl status --json | jq '.troubles[].what'\n",
             [&c] { return RunStatus(c.globals); });
}

void AddVersion(CLI::App& app, Commands& c) {
  AddCommand(app, c, "version",
             "Show the release of each part that runs on this machine",
             "  fsctl version                   exit code 1 if they differ\n"
             "  fsctl version --json | jq '.parts[] | select(.former)'\n",
             [&c] { return RunVersion(c.globals); });
}

void AddModels(CLI::App& app, Commands& c) {
  AddCommand(app, c, "models", "Show a fleet's models: queues, engines, SLOs",
             "  fsctl models\n"
             "  fsctl models --json | jq '.models[].engines[].kappa'\n",
             [&c] { return RunModels(c.globals); });
}

CLI::Option* AddAdmin(CLI::App* command, std::string* address) {
  return command->add_option(
      "--admin", *address,
      absl::StrCat(
          "Admin address of the fineserve-proxy (default: of the one that runs "
          "here, else ",
          kProxyAdmin, ")"));
}

void AddRequests(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, c, "requests", "List or follow requests",
                 "  fsctl requests                  that wait or run now\n"
                 "  fsctl requests --most 1000 --json\n"
                 "  fsctl requests --follow         each as it ends\n"
                 "  fsctl requests --follow --model chat --json\n",
                 [&c] {
                   return c.follow.follow ? RunFollow(c.globals, c.follow)
                                          : RunRequests(c.globals, c.requests);
                 });
  command
      ->add_option("--most", c.requests.most,
                   "Maximum number of requests to list (default: 50)")
      ->check(CLI::Range(1, 10'000));
  CLI::Option* follow = command->add_flag(
      "--follow", c.follow.follow,
      "Print each request as it ends, as a fineserve-proxy sees it");
  command->add_option("--model", c.follow.model, "Only this model's")
      ->needs(follow);
  AddAdmin(command, &c.follow.admin)->needs(follow);
}

void AddTrace(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "trace", "Show the life of one request",
      "  fsctl trace 5f2c0e8d9a7b4c3f8e1d2a6b9c0f7e5d\n"
      "  fsctl trace 5f2c                if no other begins so\n"
      "  fsctl trace my-id --json | jq .waited_for\n"
      "fsctl requests shows the ids; each answer carries its own as\n"
      "x-request-id. A fineserve-proxy knows what is under way and what ended\n"
      "lately.\n",
      [&c] { return RunTrace(c.globals, c.trace); });
  command
      ->add_option("ID", c.trace.id,
                   "The request's x-request-id, or how it begins")
      ->required();
  AddAdmin(command, &c.trace.admin);
}

void AddUsage(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "usage", "Show what each named key has spent",
      "  fsctl usage\n"
      "  fsctl usage --json | jq '.keys[] | select(.tokens_today > 1e6)'\n"
      "A key has a name by name= in the file of keys; fineserve-fleet(5) says\n"
      "how. Days are those of UTC.\n",
      [&c] { return RunUsage(c.globals, c.usage_admin); });
  AddAdmin(command, &c.usage_admin);
}

void AddDrain(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "drain", "Stop sending new requests to an engine, GPU or machine",
      "  fsctl drain llama-a             before you stop the engine\n"
      "  fsctl drain llama-a --wait 60   until it runs nothing\n"
      "  fsctl drain llama-a --undo\n"
      "  fsctl drain GPU-8f0c3f1e        its models move to other GPUs\n"
      "  fsctl drain rack1-m3            the same for each GPU of a machine\n"
      "  fsctl drain --all               every engine of this GPU\n",
      [&c] { return RunDrain(c.globals, c.drain); });
  command->add_option("TARGET", c.drain.target,
                      "Engine or machine in the fleet file, or a GPU's UUID "
                      "(GPU-...) or how it begins");
  command->add_flag("--all", c.drain.all, "Drain every engine");
  CLI::Option* const undo =
      command->add_flag("--undo", c.drain.undo, "Send requests again");
  command
      ->add_option("--wait", c.drain.wait_s,
                   "Return once they run no request, or fail after so many "
                   "seconds")
      ->excludes(undo);
}

void AddLimit(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "limit", "Limit what an engine may hold of the pool",
      "  fsctl limit                     the engines' limits\n"
      "  fsctl limit llama-a 30%         of the pool as it is now\n"
      "  fsctl limit llama-a 8GiB\n"
      "  fsctl limit llama-a none        takes it away\n"
      "  fsctl limit --json | jq '.engines[] | select(.above_slabs > 0)'\n"
      "It counts at once: the engine gets no slab above it, and is asked for\n"
      "those that it holds above it. Never below the engine's floor; ends "
      "with\n"
      "the engine.\n",
      [&c] { return RunLimit(c.globals, c.limit); });
  command->add_option("ENGINE", c.limit.engine,
                      "Its name or number (fsctl engines)");
  command->add_option("AMOUNT", c.limit.amount,
                      "A part of the pool (30%), a size (8GiB), or none");
}

void AddMove(CLI::App* command, Commands& c) {
  command
      ->add_option("ENGINE", c.move.engine,
                   "Its name or number (fsctl engines)")
      ->required();
  command
      ->add_option("--timeout", c.move.timeout_s,
                   "Seconds to wait for it (600); it goes on after that")
      ->check(CLI::PositiveNumber);
}

void AddEvict(CLI::App& app, Commands& c) {
  AddMove(
      AddCommand(
          app, c, "evict", "Move what an engine keeps on the GPU to the host",
          "  fsctl evict llama-a\n"
          "The engine must have been started for it (evict = \"auto\" in the\n"
          "fleet file, fsctl run --evict) and have no request. Its process "
          "and\n"
          "addresses stay; the next request brings it back.\n",
          [&c] { return RunMove(c.globals, c.move, abi::Place::kHost); }),
      c);
}

void AddActivate(CLI::App& app, Commands& c) {
  AddMove(
      AddCommand(
          app, c, "activate", "Bring an engine's memory back to the GPU",
          "  fsctl activate llama-a\n"
          "A request does so by itself. If the GPU has no room for it, all\n"
          "stays on the host.\n",
          [&c] { return RunMove(c.globals, c.move, abi::Place::kGpu); }),
      c);
}

void AddStore(CLI::App& app, Commands& c) {
  AddCommand(app, c, "store",
             "Show what the daemon keeps in host memory of evicted engines",
             "  fsctl store\n"
             "  fsctl store --json | jq .needed_bytes\n",
             [&c] { return RunStore(c.globals); });
}

void AddSupport(CLI::App& app, Commands& c) {
  SupportOptions& o = c.support;
  CLI::App* command = AddCommand(
      app, c, "support", "Write an archive of what a bug report needs",
      "  fsctl support\n"
      "  fsctl support --fleet fleet.toml --logs /var/log/fineserve\n"
      "  fsctl support --output report.tar.gz\n"
      "It holds versions, the configuration, doctor's report, the slab "
      "tables,\n"
      "what shims decided, the figures of proxies, and the ends of logs; no "
      "keys and no prompts.\n",
      [&c] { return RunSupport(c.globals, c.support); });
  command->add_option("--fleet", o.fleet_path,
                      "Fleet file (default: those of fsctl up)");
  command->add_option("--config", o.config_path,
                      "fineserved's file (default: "
                      "/etc/fineserve/fineserve.toml)");
  command->add_option("--logs", o.log_folder,
                      "Folder of the engines' output, if fsctl up was given "
                      "one");
  command->add_option("--output", o.output,
                      "File to write (default: fineserve-support-TIME.tar.gz)");
}

void AddMetrics(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "metrics", "List the metrics that Prometheus can read",
      "  fsctl metrics\n"
      "  fsctl metrics quarantine        whose name or meaning says so\n"
      "  fsctl metrics --json | jq -r '.metrics[].name'\n",
      [&c] { return RunMetrics(c.globals, c.metrics); });
  command->add_option("PART", c.metrics.part,
                      "List those alone whose name or meaning has this part");
}

void AddUpgrade(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, c, "upgrade",
      "Replace fineserved by another release while engines serve",
      "  fsctl upgrade --check           would it work? Changes nothing\n"
      "  fsctl upgrade                   starts what is installed now\n"
      "  fsctl upgrade --binary ./fineserved\n"
      "Engines serve on. The pool must be kept by systemd or by fineserved\n"
      "--supervise. If the new release does not serve this pool as the former\n"
      "one did, the former one is started again (exit code 4; 5 if neither\n"
      "serves).\n",
      [&c] { return RunUpgrade(c.globals, c.upgrade); });
  command->add_flag("--check", c.upgrade.check,
                    "Only say whether the upgrade can be made");
  command->add_option("--binary", c.upgrade.binary,
                      "fineserved to install in place of the one that serves "
                      "(default: what is in its place by now)");
  command->add_option("--timeout", c.upgrade.timeout_s,
                      "Seconds that the new daemon may take before the former "
                      "one is started again (default: 30)");
}

void AddNodes(CLI::App& app, Commands& c) {
  AddCommand(app, c, "nodes", "Show the machines of a fleet of several",
             "  fsctl nodes\n"
             "  fsctl nodes --json | jq '.machines[] | "
             "select(.state!=\"alive\")'\n",
             [&c] { return RunNodes(c.globals); });
}

void AddKeys(CLI::App& app, Commands& c) {
  using Do = KeysOptions::Do;
  CLI::App* command = AddCommand(
      app, c, "keys", "Show and make this machine's keys, and trust others'",
      "  fsctl keys new                  once on each machine\n"
      "  fsctl keys show\n"
      "  fsctl keys trust b 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7'\n"
      "  fsctl keys distrust b\n"
      "The keys are in $FINESERVE_KEYS, by default /etc/fineserve/curve.\n",
      [&c] { return RunKeys(c.globals, c.keys); });
  const auto add = [&](const char* name, const char* what, Do does) {
    CLI::App* one = command->add_subcommand(name, what);
    one->callback([&c, does] { c.keys.what = does; });
    return one;
  };
  command->require_subcommand(0, 1);
  add("show", "Show this machine's public key and those it trusts", Do::kShow);
  add("new", "Make this machine's keys", Do::kNew);
  command->add_flag("--replace", c.keys.replace,
                    "With new: even if this machine has some");
  CLI::App* trust =
      add("trust", "Let a machine connect, and connect to it", Do::kTrust);
  trust->add_option("MACHINE", c.keys.machine, "Its name in [cluster]")
      ->required();
  trust->add_option("KEY", c.keys.key, "Its public key")->required();
  add("distrust", "End that", Do::kDistrust)
      ->add_option("MACHINE", c.keys.machine, "Its name")
      ->required();
}

void AddGlobals(CLI::App& app, Commands& c) {
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version",
                       absl::StrCat("fsctl " FINESERVE_VERSION " (ABI version ",
                                    abi::kAbiVersion, ")"));
  app.add_option("--gpu", c.globals.gpu,
                 "Daemon to use: a GPU UUID, a prefix of one, or a socket "
                 "path; needed only if several daemons run");
  app.add_flag("--json", c.globals.json, "Print JSON");
  app.add_option("--color", c.color,
                 "Color the output: auto, always or never (default: auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.footer(
      "Examples:\n"
      "  fsctl doctor                    before the first start\n"
      "  fsctl run -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl status                    what is wrong, and what mends it\n"
      "  fsctl top\n"
      "\nExit codes: 0 success, 1 the answer is bad, 2 wrong usage, "
      "3 no daemon\n");
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

// Null if there is none.
const CLI::App* CommandNamed(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found[0];
}

int FailAsUnknown(const CLI::App& app, const std::string& name) {
  return Fail(kExitUsage, absl::StrCat("unknown command '", name, "'",
                                       DidYouMean(name, CommandsOf(app)),
                                       "; see fsctl --help"));
}

// Prints the help on one command, or on all.
int RunHelp(const CLI::App& app, const Commands& c) {
  const std::string& name = c.helped;
  if (name.empty()) return Print(c.help);
  const CLI::App* const command = CommandNamed(app, name);
  if (command == nullptr) return FailAsUnknown(app, name);
  return Print(command->help("fsctl"));
}

void AddHelp(CLI::App& app, Commands& c) {
  AddCommand(app, c, "help", "Show the help on a command",
             "  fsctl help slabs\n", [&app, &c] { return RunHelp(app, c); })
      ->add_option("COMMAND", c.helped, "A command of fsctl (default: all)");
}

// In the order in which --help shows them.
void AddAll(CLI::App& app, Commands& c) {
  using Add = void (*)(CLI::App&, Commands&);
  const struct {
    const char* group;
    std::vector<Add> commands;
  } kGroups[] = {
      {"Look (start with status)",
       {AddStatus, AddTop, AddModels, AddEngines, AddSlabs, AddRequests,
        AddTrace, AddUsage, AddStore, AddMetrics}},
      {"Run a fleet",
       {AddUp, AddApply, AddRestart, AddStop, AddStart, AddRun, AddDrain,
        AddLimit, AddEvict, AddActivate, AddUpgrade}},
      {"When something is wrong",
       {AddDoctor, AddLogs, AddStack, AddExplain, AddSupport}},
      {"Plan", {AddPlan, AddProfile, AddGeometry}},
      {"Several machines", {AddNodes, AddKeys}},
      {"Help", {AddHelp, AddVersion}},
  };
  for (const auto& group : kGroups) {
    for (const Add add : group.commands) {
      add(app, c);
      app.get_subcommands({}).back()->group(group.group);
    }
  }
  c.help = app.help();  // a parsed app's would be that of its command
}

std::string CommandLineOf(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "fsctl"
                        : absl::StrCat("fsctl ", chosen[0]->get_name());
}

// CLI11 would only say that a subcommand is required.
bool IsUnknownCommand(const CLI::App& app, int argc, char** argv) {
  return argc >= 2 && argv[1][0] != '-' &&
         CommandNamed(app, argv[1]) == nullptr;
}

// True if `run` was given its command without the dashes that separate the two.
bool HasBareCommand(const CLI::App& app, bool without_dashes) {
  if (!without_dashes || !app.got_subcommand("run")) return false;
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  return !words.empty() && words[0].rfind('-', 0) != 0;
}

// Takes what follows the first "--", the command to run, unparsed. Returns the
// number of words before it.
int SplitCommand(int argc, char** argv, std::vector<std::string>* command) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    command->assign(argv + i + 1, argv + argc);
    return i;
  }
  return argc;
}

int Main(int argc, char** argv) {
  CLI::App app("fsctl: look at FineServe and run engines under it", "fsctl");
  Commands commands;
  AddGlobals(app, commands);
  AddAll(app, commands);
  if (argc == 1) {
    Print(commands.help);
    return kExitUsage;
  }
  const int own = SplitCommand(argc, argv, &commands.run.command);
  if (IsUnknownCommand(app, own, argv)) {
    return FailAsUnknown(app, argv[1]);
  }
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    if (HasBareCommand(app, own == argc)) {
      return Fail(kExitUsage,
                  absl::StrCat("run takes its command after --: fsctl run -- ",
                               absl::StrJoin(app.remaining(true), " ")));
    }
    return Fail(kExitUsage, cli::UsageText(app, error, CommandLineOf(app)));
  }
  if (own < argc && !app.got_subcommand("run")) {
    return Fail(kExitUsage,
                "only run takes a command after --; see fsctl --help");
  }
  commands.globals.color = UseColor(commands.color, isatty(STDOUT_FILENO));
  return commands.chosen();
}

}  // namespace
}  // namespace fineserve::fsctl

int main(int argc, char** argv) {
  return fineserve::fsctl::FlushOutput(fineserve::fsctl::Main(argc, argv));
}
