#include "tests/gpu/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::gpu {
namespace {

// Returns the variables that every test program gets. LD_PRELOAD is empty,
// because a user's preload must not reach the driver's tests. The patience
// makes a test that hangs end before its program does, so that the program can
// report the other tests.
Environment CommonEnvironment(const Plan& plan) {
  Environment e = {{"LD_PRELOAD", ""},
                   {"FINESERVE_TEST_PATIENCE", "300"},
                   {"EMUCUDA_DIR", plan.folder + "/gpu"}};
  if (!plan.emulated) {
    e["FINESERVE_LIBCUDA"] = "libcuda.so.1";
    e["FINESERVE_TEST_GPU"] = "0";
    e["FINESERVE_TEST_PATIENCE"] = absl::StrCat(kCheckLimitS / 2);
  }
  if (plan.allow_mps) e["FINESERVE_ALLOW_MPS"] = "1";
  return e;
}

Check GoogleTest(const Plan& plan, std::string name, std::string question,
                 const std::string& program, const std::string& filter) {
  Check check = {std::move(name), std::move(question), {}, ""};
  check.command.words = {plan.prefix + "/bin/" + program,
                         "--gtest_filter=" + filter, "--gtest_color=no",
                         "--gtest_output=json:" + CasesFile(plan, check.name)};
  check.command.environment = CommonEnvironment(plan);
  if (!plan.emulated) check.command.limit_s = kCheckLimitS;
  return check;
}

std::string Shim(const Plan& plan) {
  const std::string installed = plan.prefix + "/lib/fineserve/";
  return (access(installed.c_str(), X_OK) == 0 ? installed
                                               : plan.prefix + "/lib/") +
         "libfineserve_shim.so";
}

// Without a daemon, the shim must change nothing that a program can see.
Check UnderTheShim(const Plan& plan) {
  Check check = GoogleTest(plan, "under-the-shim",
                           "the driver behaves the same under the preload",
                           "driver_conformance_test", "*");
  check.command.environment["LD_PRELOAD"] = Shim(plan);
  check.command.environment["FINESERVE_RUNTIME_DIR"] = plan.folder + "/none";
  return check;
}

// Checks the runtime that programs on this machine would get. The "torch" check
// covers the one in PyTorch's wheels.
Check Runtime(const Plan& plan) {
  Check check = GoogleTest(plan, "runtime",
                           "a CUDA runtime on the driver, at its public API",
                           "runtime_conformance_test", "*");
  if (plan.emulated) return check;
  for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL) == nullptr) continue;
    check.command.environment["FINESERVE_LIBCUDART"] = name;
    return check;
  }
  check.skipped = "no libcudart.so.13 or .12 is found here";
  return check;
}

// Runs scenes that need no control over the device, in checks that each take
// less than a minute. A rehearsal on the emulated device runs the same scenes.
Check EndToEnd(const Plan& plan) {
  return GoogleTest(plan, "end-to-end",
                    "fineserved and stock engines under the shim",
                    "integration_test", "LeaseTest.*");
}

Check Deaths(const Plan& plan) {
  return GoogleTest(plan, "deaths", "engines and fineserved are killed",
                    "integration_test",
                    "DeathTest.KilledEngines*:DeathTest.EnginesGoOn*:"
                    "DeathTest.RandomKills*");
}

Check Allocators(const Plan& plan) {
  return GoogleTest(plan, "allocators",
                    "each way to allocate leads to slabs, or to the driver",
                    "integration_test",
                    "*AllocatorChannel.*:RuntimeRequestTest.*");
}

Check Views(const Plan& plan) {
  return GoogleTest(plan, "views",
                    "engines trade slabs of views, and are killed",
                    "integration_test",
                    "ViewTest.EnginesOfTwo*:ViewTest.KilledEngines*:"
                    "ViewDeathTest.NoSlab*");
}

Check Takeover(const Plan& plan) {
  return GoogleTest(plan, "takeover",
                    "a daemon takes over from one that was killed",
                    "restart_integration_test",
                    "DaemonRestartTest.EnginesServeOn*:"
                    "DaemonRestartTest.EngineThatDies*:"
                    "DaemonRestartTest.NextDaemonServes*");
}

Check Weights(const Plan& plan) {
  return GoogleTest(plan, "weights",
                    "an engine's weights leave the GPU and come back",
                    "eviction_integration_test",
                    "EvictionTest.CopyBehind*:EvictionTest.CopyOfAn*:"
                    "EvictionTest.EngineThatIsNeeded*");
}

Check Emulator(const Plan& plan) {
  Check check =
      GoogleTest(plan, "emulator", "what only the emulated device has",
                 "emulator_conformance_test", "*");
  if (!plan.emulated) check.skipped = "there is none on a real GPU";
  return check;
}

// A bundle has our scripts under share/, in the same folders as the source
// tree.
std::string Script(const Plan& plan, const std::string& path) {
  const std::string carried = plan.prefix + "/share/fineserve/" + path;
  return access(carried.c_str(), R_OK) == 0 ? carried
                                            : plan.prefix + "/../../" + path;
}

// Runs a script of ours under the user's Python, which has PyTorch.
Check Python(const Plan& plan, std::string name, std::string question,
             const std::string& script) {
  Check check = {std::move(name), std::move(question), {}, ""};
  const char* python = getenv("FINESERVE_PYTHON");
  check.command.words = {python == nullptr ? "python3" : python,
                         Script(plan, script),
                         "--prefix",
                         plan.prefix,
                         "--device",
                         plan.emulated ? "emulated" : "real",
                         "--output",
                         CasesFile(plan, check.name)};
  check.command.environment = CommonEnvironment(plan);
  check.command.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  check.command.limit_s = plan.emulated ? 1800 : kLongCheckLimitS;
  const Command found = {{check.command.words[0], "-c", ""}, {}, 60};
  if (!RunToEnd(found, "/dev/null").empty()) {
    check.skipped = "there is no " + check.command.words[0];
  }
  return check;
}

Check Vllm(const Plan& plan) {
  Check check = Python(plan, "vllm", "stock vLLM serves on a view",
                       "tests/gpu/vllm_check.py");
  check.command.limit_s = 1800;
  if (!plan.vllm) check.skipped = "it takes minutes: --vllm runs it";
  return check;
}

// Returns what it means for FineServe if a check fails, and what to try; empty
// if the check's reason says enough.
std::string Otherwise(const std::string& check) {
  static const std::map<std::string, std::string> texts = {
      {"export",
       "no pool can be shared here; try outside of the virtual machine or "
       "sandbox, or a container with --privileged"},
      {"aliases",
       "engines map granule by granule, and start more slowly; nothing to try"},
      {"keep",
       "a daemon that dies while no engine runs loses its pool; try nvidia-smi "
       "-pm 1"},
      {"teardown",
       "a dead engine's slabs must not be leased again; try the host's pid "
       "namespace (--pid=host) where the driver lists no process, and no "
       "FineServe where it forgets one too early"},
      {"unmap", "views in mode guarded wait as long; try mode view"},
      {"graph-swap",
       "engines with CUDA graphs cannot have views; try them without (vLLM: "
       "--enforce-eager), or whole slabs"},
      {"end-to-end", "try fsctl doctor, which names what is missing"},
      {"deaths", "try one engine at most, and send the report"},
      {"views", "try whole slabs (fsctl run --no-view)"},
      {"takeover", "try to stop the engines before fineserved"},
      {"weights", "try engines without FINESERVE_EVICT"}};
  const auto found = texts.find(check);
  return found == texts.end() ? "" : found->second;
}

}  // namespace

std::string CasesFile(const Plan& plan, const std::string& check) {
  return absl::StrCat(plan.folder, "/", check, ".json");
}

std::string LogFile(const Plan& plan, const std::string& check) {
  return absl::StrCat(plan.folder, "/", check, ".log");
}

std::vector<Check> Checks(const Plan& plan) {
  const auto unproven = [&plan](const char* name, const char* question,
                                const char* filter) {
    return GoogleTest(plan, name, question, "unproven_test", filter);
  };
  const auto informative = [](Check check) {
    check.weight = Weight::kInformative;
    return check;
  };
  std::vector<Check> checks = {
      unproven("export",
               "a descriptor of device memory works in another process",
               "Export.*"),
      informative(unproven(
          "aliases", "one call over many mappings of one handle", "Aliases.*")),
      // If this fails, the next daemon begins with a new pool.
      informative(unproven(
          "keep", "memory of a dead process, kept by a descriptor", "Keep.*")),
      unproven("teardown", "delay from kill -9 until the driver forgets",
               "Teardown.*"),
      informative(unproven("unmap",
                           "wait beside queued work and beside a dying process",
                           "Unmap.*")),
      EndToEnd(plan),
      Deaths(plan),
      unproven("graph-swap", "graph replay after a swap behind the address",
               "Swap.*"),
      Views(plan),
      // If this fails, engines go on, beside a new pool.
      informative(Takeover(plan)),
      // Only engines that were started for it (FINESERVE_EVICT) rely on it.
      informative(Weights(plan)),
      Allocators(plan),
      GoogleTest(plan, "conformance", "the driver behaves as FineServe needs",
                 "driver_conformance_test", "*"),
      informative(
          unproven("handles-8k", "cost of 8,192 handles", "Handles.Eight*")),
      informative(unproven("handles-32k", "cost of 32,768 handles",
                           "Handles.ThirtyTwo*")),
      informative(unproven("mps", "import and death under MPS", "Mps.*")),
      informative(unproven("bandwidth",
                           "bandwidth through slabs against cuMemAlloc",
                           "Bandwidth.*")),
      informative(unproven("virtual-machine",
                           "descriptor export inside a sandboxed VM",
                           "Sandbox.*")),
      UnderTheShim(plan),
      GoogleTest(plan, "channels",
                 "each way to find the driver leads to the hooks, or is found "
                 "out",
                 "channel_conformance_test", "*"),
      GoogleTest(plan, "kernels", "our kernels agree with their host twins",
                 "kernel_conformance_test", "*"),
      Runtime(plan),
      Emulator(plan),
      Python(plan, "torch", "stock PyTorch under the shim",
             "tests/gpu/torch_check.py"),
      Vllm(plan),
  };
  for (Check& check : checks) {
    check.otherwise = Otherwise(check.name);
    unsigned& limit_s = check.command.limit_s;
    if (plan.limit_s != 0) limit_s = std::min(limit_s, plan.limit_s);
  }
  return checks;
}

// Returns the last test that a program began, as GoogleTest's log names it;
// empty if none.
static std::string LastBegun(const std::string& log) {
  constexpr char kMark[] = "[ RUN      ] ";
  std::ifstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kMark, 0) == 0) last = line.substr(sizeof(kMark) - 1);
  }
  return last;
}

Outcome Perform(const Plan& plan, const Check& check) {
  if (!check.skipped.empty()) return {Verdict::kSkipped, check.skipped, {}, 0};
  const auto start = std::chrono::steady_clock::now();
  const std::string log = LogFile(plan, check.name);
  std::string ended = RunToEnd(check.command, log);
  const std::string last = ended.empty() ? "" : LastBegun(log);
  std::vector<Case> cases = ReadCases(CasesFile(plan, check.name));
  // A test program exits with 1 if a case failed.
  const bool says_more = ended != "ended with 1" || cases.empty();
  if (!last.empty()) absl::StrAppend(&ended, ", in ", last);
  Outcome outcome = Judge(std::move(cases), says_more ? ended : "");
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return outcome;
}

}  // namespace fineserve::gpu
