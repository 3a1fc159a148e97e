// fsctl: looks at FineServe and starts engines under it. This file only
// registers commands and flags; each command lies in a file of its own.

#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/version.h"
#include "tools/fsctl/admission/admission_commands.h"
#include "tools/fsctl/doctor/doctor.h"
#include "tools/fsctl/explain/explain.h"
#include "tools/fsctl/geometry/geometry.h"
#include "tools/fsctl/launch/run_command.h"
#include "tools/fsctl/launch/up.h"
#include "tools/fsctl/look/engines.h"
#include "tools/fsctl/look/slabs.h"
#include "tools/fsctl/look/top.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

struct Commands {
  Globals globals;
  std::string color = "auto";
  SlabsOptions slabs;
  std::string slabs_by = "slab";
  TopOptions top;
  ExplainOptions explain;
  GeometryOptions geometry;
  RunOptions run;
  RequestsOptions requests;
  DrainOptions drain;
  UpOptions up;
  pid_t doctor_pid = 0;  // 0: the machine
  std::function<int()> chosen;
};

CLI::App* AddCommand(CLI::App& app, const char* name, const char* what,
                     const char* examples) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer(absl::StrCat("Examples:\n", examples,
                               "\nGlobal flags: --gpu, --json, --color; see "
                               "fsctl --help\n"));
  return command;
}

std::string PidTrouble(const std::string& text) {
  pid_t pid = 0;
  const bool good = absl::SimpleAtoi(text, &pid) && pid > 0;
  return good ? "" : absl::StrCat("not a process id: ", text);
}

// CLI11 knows no "--"; its usage line would leave the command out.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "Usage: fsctl run [OPTIONS] -- COMMAND [ARGS...]\n";
  }
};

template <size_t N>
std::vector<std::string> Names(const char* const (&names)[N]) {
  return {std::begin(names), std::end(names)};
}

// The enumerator whose name this is; `name` is one of them.
template <typename Order, size_t N>
Order OrderNamed(const std::string& name, const char* const (&names)[N]) {
  return static_cast<Order>(
      std::find(std::begin(names), std::end(names), name) - std::begin(names));
}

void AddSlabs(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, "slabs", "Show who holds which slab of the pool",
                 "  fsctl slabs\n"
                 "  fsctl slabs --all --gpu GPU-4a1f\n"
                 "  fsctl slabs --by density        fullest slabs first\n"
                 "  fsctl slabs --json | jq .states.free.bytes\n");
  command->add_flag("--all", c.slabs.all, "One line per slab");
  command
      ->add_option("--by", c.slabs_by,
                   "Order: slab, state, format, engine, age or density "
                   "(slab)")
      ->check(CLI::IsMember(Names(kSlabOrders)));
  command->callback([&] {
    c.slabs.order = OrderNamed<SlabOrder>(c.slabs_by, kSlabOrders);
    c.chosen = [&] { return RunSlabs(c.globals, c.slabs); };
  });
}

void AddTop(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, "top", "Watch the pool and its engines as they change",
                 "  fsctl top                       q quits, s sorts\n"
                 "  fsctl top --interval 0.5\n"
                 "  fsctl top --once                one frame as text\n"
                 "  fsctl top --once --interval 0   totals, no rates\n"
                 "  fsctl top --once --json | jq '.engines[].leased'\n");
  command->add_option("--interval", c.top.interval_s,
                      "Seconds between two looks (1)");
  command->add_flag("--once", c.top.once, "Print one frame as text");
  command->callback(
      [&] { c.chosen = [&] { return RunTop(c.globals, c.top); }; });
}

void AddEngines(CLI::App& app, Commands& c) {
  AddCommand(app, "engines", "List the engines that share the pool",
             "  fsctl engines\n"
             "  fsctl engines --json | jq '.engines[].pids'\n")
      ->callback([&] { c.chosen = [&] { return RunEngines(c.globals); }; });
}

void AddExplain(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, "explain", "Show what the shim in a process decided, and why",
      "  fsctl explain 4711\n"
      "  fsctl explain 4711 --last 0     every decision that is kept\n");
  command->add_option("PID", c.explain.pid, "The process")
      ->required()
      ->check(CLI::Validator(PidTrouble, "NUMBER"));
  command->add_option("--last", c.explain.last,
                      "How many decisions to print, 0 for all (20)");
  command->callback(
      [&] { c.chosen = [&] { return RunExplain(c.globals, c.explain); }; });
}

void AddDoctor(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, "doctor", "Check this machine, or one process, and what to repair",
      "  fsctl doctor\n"
      "  fsctl doctor 4711               which hooks it came to, what bypassed "
      "them\n"
      "  fsctl doctor --json | jq '.checks[] | select(.result==\"FAIL\")'\n");
  command->add_option("PID", c.doctor_pid, "A process to look at")
      ->check(CLI::Validator(PidTrouble, "NUMBER"));
  command->callback([&] {
    c.chosen = [&] {
      return c.doctor_pid == 0 ? RunDoctor(c.globals)
                               : RunProcessDoctor(c.globals, c.doctor_pid);
    };
  });
}

void AddGeometry(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, "geometry", "Show how block formats cut a pool into slabs",
      "  fsctl geometry --pool 64GiB \\\n"
      "    --model 8b:layers=32,kv-heads=8,head-dim=128,precision=fp16 \\\n"
      "    --model 32b:layers=64,kv-heads=8,head-dim=128,precision=fp8\n"
      "  fsctl geometry --pool 64GiB --slab 512MiB "
      "--format planes=36,page=64KiB\n"
      "  fsctl geometry --running --format planes=36,page=64KiB,tokens=16\n"
      "\nA --model has layers, kv-heads, head-dim, precision (fp32 fp16 bf16 "
      "fp8 int8 fp4\nint4), tp, quant-bytes (per block and layer), tokens (per "
      "block, 16), layout\n(layers; split: K and V apart; packed: all layers "
      "of a block together).\n");
  GeometryOptions& o = c.geometry;
  command->add_option("--model", o.models, "[NAME:]KEY=VALUE,...; repeatable");
  command->add_option("--format", o.formats,
                      "[NAME:]planes=N,page=SIZE[,tokens=N]; repeatable");
  command->add_option("--pool", o.pool, "Size of the pool");
  command->add_option("--slab", o.slab, "Judge slabs of this size");
  command->add_option("--granule", o.granule, "With --slab: its granules");
  command->add_flag("--running", o.running, "Judge the running daemon's pool");
  command->add_option("--engines", o.engines,
                      "Engines that hold slabs at once (one per format)");
  command->add_option("--granularity", o.granularity, "The driver's (2MiB)");
  command
      ->add_option("--max-handles", o.max_handles, "Most handles of the pool")
      ->check(CLI::PositiveNumber);
  command->add_flag("--all", o.all, "Every cut that is worth considering");
  command->callback(
      [&] { c.chosen = [&] { return RunGeometry(c.globals, c.geometry); }; });
}

void AddRun(CLI::App& app, Commands& c) {
  CLI::App* command = AddCommand(
      app, "run", "Run a command with its KV memory in the pool",
      "  fsctl run -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl run --view -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl run --name chat --kv-size 512MiB -- ./engine --port 8000\n"
      "The device is the command's own choice (CUDA_VISIBLE_DEVICES).\n");
  command->formatter(std::make_shared<RunFormatter>());
  command->add_option("--name", c.run.name,
                      "Name of the engine; processes of one name form one");
  command
      ->add_option("--kv-size", c.run.kv_sizes,
                   "Size of an allocation that is KV, e.g. 512MiB; repeatable")
      ->expected(1);
  command
      ->add_flag("--view{required}", c.run.view,
                 "Share the pool slab by slab, by the engine's plugin (vLLM); "
                 "=required, the default: do not run without")
      ->check(CLI::IsMember({"required", "1"}));
  command->callback(
      [&] { c.chosen = [&] { return RunRun(c.globals, c.run); }; });
}

void AddUp(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, "up", "Start a fleet's engines and keep them running",
                 "  fsctl up fleet.toml             Ctrl-C ends them all\n"
                 "  fsctl up fleet.toml --logs /var/log/fineserve\n"
                 "  fsctl up fleet.toml --json      an object a line\n"
                 "  fsctl up fleet.toml --mps       kernels of engines run at "
                 "once\n"
                 "fineserved must run; fineserve-proxy reads the same file.\n");
  command->add_option("FILE", c.up.fleet_path, "The fleet (TOML)")->required();
  command->add_option("--logs", c.up.log_folder,
                      "Folder of engines' output (the runtime folder)");
  command->add_flag("--mps", c.up.mps,
                    "Start NVIDIA's MPS for the engines: no turns on the GPU, "
                    "but a fatal fault of one ends all");
  command->callback([&] { c.chosen = [&] { return RunUp(c.globals, c.up); }; });
}

void AddModels(CLI::App& app, Commands& c) {
  AddCommand(app, "models", "Show queues, engines and SLOs of a fleet's models",
             "  fsctl models\n"
             "  fsctl models --json | jq '.models[].engines[].kappa'\n")
      ->callback([&] { c.chosen = [&] { return RunModels(c.globals); }; });
}

void AddRequests(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, "requests", "List requests that wait or run",
                 "  fsctl requests\n"
                 "  fsctl requests --most 1000 --json\n");
  command->add_option("--most", c.requests.most, "How many to list (50)")
      ->check(CLI::Range(1, 10'000));
  command->callback(
      [&] { c.chosen = [&] { return RunRequests(c.globals, c.requests); }; });
}

void AddDrain(CLI::App& app, Commands& c) {
  CLI::App* command =
      AddCommand(app, "drain", "Give an engine no new requests",
                 "  fsctl drain llama-a          before it is stopped\n"
                 "  fsctl drain llama-a --undo\n"
                 "  fsctl drain                  all engines\n");
  command->add_option("ENGINE", c.drain.engine, "Its name in the fleet (all)");
  command->add_flag("--undo", c.drain.undo, "Take requests again");
  command->callback(
      [&] { c.chosen = [&] { return RunDrain(c.globals, c.drain); }; });
}

void AddGlobals(CLI::App& app, Commands& c) {
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version",
                       absl::StrCat("fsctl " FINESERVE_VERSION " (ABI version ",
                                    abi::kAbiVersion, ")"));
  app.add_option("--gpu", c.globals.gpu,
                 "UUID (or its beginning) or socket of a daemon; needed only "
                 "when several run");
  app.add_flag("--json", c.globals.json, "Print JSON");
  app.add_option("--color", c.color, "auto, always or never (auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.footer(
      "Examples:\n"
      "  fsctl doctor\n"
      "  fsctl run -- vllm serve Qwen/Qwen3-8B\n"
      "  fsctl slabs\n"
      "  fsctl top\n"
      "\nExit codes: 0 ok, 1 the answer is bad, 2 usage, 3 no daemon\n");
}

std::string CommandLineOf(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "fsctl"
                        : absl::StrCat("fsctl ", chosen[0]->get_name());
}

// CLI11's own words, on one line, with where to read on.
int UsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::string what = error.what();
  for (char& c : what) {
    if (c == '\n') c = ' ';
  }
  return Fail(kExitUsage,
              absl::StrCat(what, "; see ", CommandLineOf(app), " --help"));
}

// CLI11 would only say that a subcommand is required.
bool IsUnknownCommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  const auto is_it = [&](const CLI::App* command) {
    return command->get_name() == argv[1];
  };
  return app.get_subcommands(is_it).empty();
}

// Everything behind the first "--" belongs to the command to run and is not
// looked at. Returns how many words stand before it.
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
  AddSlabs(app, commands);
  AddTop(app, commands);
  AddEngines(app, commands);
  AddExplain(app, commands);
  AddDoctor(app, commands);
  AddGeometry(app, commands);
  AddRun(app, commands);
  AddUp(app, commands);
  AddModels(app, commands);
  AddRequests(app, commands);
  AddDrain(app, commands);
  const int own = SplitCommand(argc, argv, &commands.run.command);
  if (IsUnknownCommand(app, own, argv)) {
    return Fail(kExitUsage, absl::StrCat("unknown command '", argv[1],
                                         "'; see fsctl --help"));
  }
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return UsageError(app, error);
  }
  if (own < argc && !app.got_subcommand("run")) {
    return Fail(kExitUsage,
                "only run takes a command behind --; see fsctl "
                "--help");
  }
  commands.globals.color = UseColor(commands.color, isatty(STDOUT_FILENO));
  return commands.chosen();
}

}  // namespace
}  // namespace fineserve::fsctl

int main(int argc, char** argv) { return fineserve::fsctl::Main(argc, argv); }
