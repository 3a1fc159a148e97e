// gpu_check checks on one device, real or emulated, what FineServe relies on,
// and writes one report. Design note 0007.

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/gpu/check.h"
#include "tests/gpu/machine.h"
#include "tests/gpu/report.h"

namespace fineserve::gpu {
namespace {

constexpr int kExitNotHeld = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDevice = 3;

constexpr char kFooter[] = R"(
Examples:
  gpu_check --device real
  gpu_check --device emulated --report emulated.md
  gpu_check --device real --only teardown
  CUDA_VISIBLE_DEVICES=1 gpu_check --device real
  FINESERVE_PYTHON=/opt/venv/bin/python gpu_check --device real --only torch
  gpu_check --device real --vllm --only vllm

Nothing is changed on the device: no mode, no clock, no MIG setting.
Exit codes: 0 all that ran held, 1 something did not, 2 wrong flag, 3 no device.)";

struct Options {
  std::string device;
  std::string report;
  std::string only;
  bool json = false;
  bool mps = false;
  bool vllm = false;
  bool list = false;
  unsigned limit_s = 0;
};

void Declare(CLI::App* app, Options* o) {
  app->add_option("--device", o->device, "Which device")
      ->check(CLI::IsMember({"real", "emulated"}));
  app->add_option("--report", o->report,
                  "Markdown file; the same as JSON is written beside it "
                  "(default: gpu_check-DEVICE.md)");
  app->add_option("--only", o->only, "Run one check (see --list)");
  app->add_flag("--json", o->json, "Print the report as JSON");
  app->add_flag("--mps", o->mps,
                "Allow the checks to start and stop an MPS daemon");
  app->add_flag("--vllm", o->vllm,
                "Run stock vLLM too: of $FINESERVE_PYTHON, or of a bundle made "
                "with --vllm");
  app->add_option("--limit", o->limit_s,
                  "Most seconds for a check (default: each one's own)");
  app->add_flag("--list", o->list, "Print the checks, run nothing");
  app->footer(kFooter);
}

// The folder of this run's files, removed with this object.
class Folder {
 public:
  explicit Folder(bool emulated) {
    // Prefers tmpfs for the emulated device, whose memory is a sparse file.
    const bool shared = emulated && access("/dev/shm", W_OK) == 0;
    path_ = shared ? "/dev/shm/gpu_check-XXXXXX" : "/tmp/gpu_check-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      perror("gpu_check: no folder for this run");
      exit(kExitNotHeld);
    }
    mkdir((path_ + "/gpu").c_str(), 0700);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Prefix() {
  return std::filesystem::read_symlink("/proc/self/exe")
      .parent_path()
      .parent_path();
}

std::string UtcNow() {
  const time_t now = time(nullptr);
  tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string FirstReason(const Outcome& outcome) {
  if (!outcome.reason.empty()) return outcome.reason;
  for (const Case& c : outcome.cases) {
    if (c.verdict == outcome.verdict && !c.reason.empty()) return c.reason;
  }
  return "";
}

void ShowProgress(const Check& check, const Outcome& outcome) {
  fprintf(stderr, "%-16s %-8s %6.1f s  %zu cases\n", check.name.c_str(),
          Word(outcome.verdict), outcome.seconds, outcome.cases.size());
  if (outcome.verdict == Verdict::kHeld) return;
  fprintf(stderr, "  %s\n", FirstReason(outcome).c_str());
}

// Explains in one sentence the most common reason why all checks fail.
void NameTheSandbox(const Machine& machine) {
  fprintf(stderr,
          "gpu_check: this machine does not let one process use device memory "
          "that another one exported (what surrounds us: %s); FineServe cannot "
          "share a pool here, run it outside of that sandbox.\n",
          machine.sandbox.c_str());
}

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.flush();
  if (!out) fprintf(stderr, "gpu_check: cannot write %s\n", path.c_str());
  return out.good();
}

bool Write(const Report& report, const std::string& markdown) {
  const std::string json =
      std::filesystem::path(markdown).replace_extension(".json");
  if (!WriteFile(markdown, Markdown(report)) ||
      !WriteFile(json, Json(report))) {
    return false;
  }
  fprintf(stderr, "gpu_check: wrote %s and %s\n", markdown.c_str(),
          json.c_str());
  return true;
}

// Skips a check that needs something which an earlier check has refuted.
void PassOver(const Outcome& exported, Check* check) {
  if (exported.verdict != Verdict::kFailed) return;
  static const std::set<std::string> need = {
      "end-to-end", "deaths",   "views", "takeover", "weights",
      "allocators", "channels", "torch", "vllm"};
  if (need.count(check->name) != 0) {
    check->skipped = "device memory cannot be shared here (see \"export\")";
  }
}

void PerformAll(const Plan& plan, const std::string& only, Report* report) {
  Outcome exported;
  for (Check& check : Checks(plan)) {
    if (!only.empty() && check.name != only) continue;
    PassOver(exported, &check);
    Outcome outcome = Perform(plan, check);
    ShowProgress(check, outcome);
    if (check.name == "export") {
      exported = outcome;
      if (outcome.verdict == Verdict::kFailed) NameTheSandbox(report->machine);
    }
    report->checks.emplace_back(std::move(check), std::move(outcome));
  }
}

int List(const Plan& plan) {
  for (const Check& check : Checks(plan)) {
    printf("%-16s %s\n", check.name.c_str(), check.question.c_str());
  }
  return 0;
}

bool Known(const Plan& plan, const std::string& name) {
  for (const Check& check : Checks(plan)) {
    if (check.name == name) return true;
  }
  return false;
}

int Run(const Options& options) {
  if (options.device.empty() && !options.list) {
    fprintf(stderr, "gpu_check: --device real or --device emulated?\n");
    return kExitUsage;
  }
  const bool emulated = options.device == "emulated";
  const Folder folder(emulated);
  const Plan plan = {emulated,      options.mps,  Prefix(),
                     folder.path(), options.vllm, options.limit_s};
  if (options.list) return List(plan);
  if (!options.only.empty() && !Known(plan, options.only)) {
    fprintf(stderr, "gpu_check: no check \"%s\"; see gpu_check --list\n",
            options.only.c_str());
    return kExitUsage;
  }
  if (emulated) setenv("EMUCUDA_DIR", (folder.path() + "/gpu").c_str(), 1);
  const auto machine = DescribeMachine(emulated, plan.prefix);
  if (!machine.ok()) {
    fprintf(stderr, "gpu_check: %s\n",
            std::string(machine.status().message()).c_str());
    return kExitNoDevice;
  }
  Report report = {emulated, UtcNow(), *machine, {}};
  fprintf(stderr, "gpu_check: %s; %s; sandbox: %s\n", machine->gpu.c_str(),
          machine->driver.c_str(), machine->sandbox.c_str());
  PerformAll(plan, options.only, &report);
  if (options.json) fputs(Json(report).c_str(), stdout);
  const std::string file = options.report.empty()
                               ? "gpu_check-" + options.device + ".md"
                               : options.report;
  const bool written = Write(report, file);
  fprintf(stderr, "gpu_check: %s\n",
          AllHeld(report) ? "all that ran held" : "NOT all held");
  return written && AllHeld(report) ? 0 : kExitNotHeld;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Checks on one GPU what FineServe relies on.", "gpu_check");
  Declare(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fprintf(stderr, "gpu_check: %s; see gpu_check --help\n", e.what());
    return kExitUsage;
  }
  return Run(options);
}

}  // namespace
}  // namespace fineserve::gpu

int main(int argc, char** argv) { return fineserve::gpu::Main(argc, argv); }
