#include "bench/replan/planned_site.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/serving/clients.h"
#include "bench/soak/interrupt.h"
#include "daemon/config/profile_file.h"
#include "tests/process/eventually.h"
#include "tests/process/free_port.h"
#include "tests/process/linger_helpers.h"

namespace fineserve::bench {
namespace {

constexpr int kGpus = 2;
constexpr uint32_t kMib = 1 << 20;
constexpr uint32_t kPoolMib = 256;
// As little as the engines' scratch, one slab each, leaves room for: the
// planner takes for KV what weights leave of the memory, not of the pool.
constexpr uint32_t kWeightMib = 16, kMemoryMib = kPoolMib + 4 * kWeightMib;
constexpr uint32_t kPageKib = 512, kBlockTokens = 16, kMostSequences = 64;
constexpr uint32_t kTokenBytes = kPageKib * 1024 / kBlockTokens;
constexpr uint32_t kChunkTokens = 2048;
constexpr unsigned kPauseUs = 100'000;

// The duration of an engine's step in µs, as of a large model: an answer takes
// 4 s, so that few requests a second, which these processes can carry on few
// cores, hold much KV.
constexpr double kBaseUs = 100'000, kTokenUs = 50, kSequenceUs = 60;

// A sixth of what is shipped, since the load is sped up; period is the least.
constexpr char kPlanner[] =
    "[planner]\nperiod = 1\nwindow = 10\nleast_gain = 0.2\ncool_down = 5\n"
    "start = 100\ndrain = 50\n";

std::string Quoted(const std::string& word) { return "\"" + word + "\""; }

// Of "serving … on …/GPU-….sock"; empty if it is not there.
std::string GpuOf(const Program& daemon) {
  const std::string printed = daemon.Printed();
  const size_t slash = printed.rfind("/GPU-");
  if (slash == std::string::npos) return "";
  const size_t end = printed.find(".sock", slash);
  return printed.substr(slash + 1, end - slash - 1);
}

bool Fail(const std::string& what) {
  if (!Interrupted()) fprintf(stderr, "replan: %s\n", what.c_str());
  return false;
}

}  // namespace

KvNeed PlannedSite::Need() {
  KvNeed need;
  need.pool_bytes = double{kPoolMib} * kMib;
  need.block_bytes = double{kPageKib} * 1024;
  need.block_tokens = kBlockTokens;
  need.lengths = kLengths;
  need.token_seconds = 1e-6 * kBaseUs;
  return need;
}

PlannedSite::PlannedSite()
    : environment_{{"FINESERVE_RUNTIME_DIR", folder_.path() + "/run"},
                   {"EMUCUDA_DIR", device_folder_.path()},
                   {"EMUCUDA_DEVICES", absl::StrCat(kGpus)},
                   {"EMUCUDA_MEMORY", absl::StrCat(kMemoryMib, "MiB")}},
      port_(process::FreePort()) {}

// The proxy ends first, then fsctl up with its engines, then the daemons.
PlannedSite::~PlannedSite() {
  while (!programs_.empty()) programs_.pop_back();
  process::EndLingering(device_folder_.path());
}

bool PlannedSite::StartFrozen(const Placing& placing) {
  if (!FindGpus()) return false;
  for (const std::string& model : Models()) WriteProfile(model);
  WriteFleet(placing);
  if (!StartDaemons(Fleet())) return false;
  programs_.push_back(Launch({"fsctl", "up", Fleet()}));
  programs_.push_back(
      Launch({"fineserve-proxy", "--fleet", Fleet(), "--log-level", "error"}));
  if (!AwaitPlan()) return false;
  if (!AwaitAnswers(port_, Models())) {
    return Fail("the engines did not answer in time; fsctl up " +
                programs_[kGpus]->About() + Fsctl({"plan"}));
  }
  return !Fsctl({"plan", "--freeze"}).empty() || Fail("the plan cannot freeze");
}

bool PlannedSite::Thaw() {
  return !Fsctl({"plan", "--thaw"}).empty() || Fail("the plan cannot thaw");
}

uint64_t PlannedSite::PlanNumber() {
  return bench::PlanNumber(Fsctl({"plan", "--json"}));
}

Moves PlannedSite::MovesSince(uint64_t plan_number) {
  return MovesIn(Fsctl({"plan", "--history", "200", "--json"}), plan_number);
}

bool PlannedSite::FindGpus() {
  if (!StartDaemons("")) return false;
  for (const auto& daemon : programs_) gpus_.push_back(GpuOf(*daemon));
  programs_.clear();
  return true;
}

bool PlannedSite::StartDaemons(const std::string& fleet) {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    std::vector<std::string> words = {"fineserved",
                                      "--gpu",
                                      absl::StrCat("emulated:", gpu),
                                      "--pool",
                                      absl::StrCat(kPoolMib, "MiB"),
                                      "--slab",
                                      "8MiB"};
    if (!fleet.empty()) words.insert(words.end(), {"--fleet", fleet});
    programs_.push_back(Launch(std::move(words)));
    if (!programs_.back()->Prints(" serving ")) {
      return Fail("fineserved does not serve: " + programs_.back()->About());
    }
  }
  return true;
}

bool PlannedSite::AwaitPlan() {
  const bool planned = process::Eventually([&] {
    usleep(kPauseUs);  // fsctl is a process each time
    return Interrupted() || IsAtRest(Fsctl({"plan", "--json"}));
  });
  return (planned && !Interrupted()) ||
         Fail("there is no plan; " + programs_[0]->About());
}

void PlannedSite::WriteProfile(const std::string& model) const {
  config::MeasuredProfile profile;
  profile.model = model;
  profile.url = "http://127.0.0.1:1";
  profile.chunk_tokens = kChunkTokens;
  profile.weight_bytes = double{kWeightMib} * kMib;
  profile.kv_token_bytes = kTokenBytes;
  profile.step = {kBaseUs, kTokenUs, kSequenceUs};
  profile.decode_base_us = kBaseUs;
  for (const uint32_t batch : {1u, 8u, 32u, kMostSequences}) {
    const uint32_t tokens = batch * kLengths.input;
    const uint32_t steps = (tokens + kChunkTokens - 1) / kChunkTokens;
    profile.points.push_back({batch, kLengths.input,
                              1e-6 * (steps * kBaseUs + tokens * kTokenUs),
                              1e-6 * (kBaseUs + batch * kSequenceUs), 0, 0, 3});
  }
  std::ofstream(absl::StrCat(folder_.path(), "/", model, ".toml"))
      << config::ProfileText(profile);
}

void PlannedSite::WriteFleet(const Placing& placing) const {
  std::vector<std::string> gpus;
  for (const std::string& gpu : gpus_) gpus.push_back(Quoted(gpu));
  if (placing.on_one_gpu) gpus.resize(1);
  std::ofstream file(Fleet());
  file << "[proxy]\nlisten = \"127.0.0.1:" << port_
       << "\"\nadmin = \"127.0.0.1:0\"\nwithout_daemon = \"fail_closed\"\n"
       << "drain = 1\n"
       << kPlanner;
  for (size_t m = 0; m < Models().size(); ++m) {
    const std::string name = Quoted(Models()[m]);
    file << "[[model]]\nname = " << name
         << "\nslo_ttft_ms = " << 1000 * kSloTtft
         << "\nmax_batch = " << kMostSequences
         << "\nchunk_tokens = " << kChunkTokens
         << "\nprofile = " << Quoted(Models()[m] + ".toml")
         << "\nexpected = { rate = " << placing.expected_rates[m]
         << ", prompt_tokens = " << kLengths.input
         << ", output_tokens = " << kLengths.output << " }\n"
         << "[[engine]]\nname = " << name << "\nmodel = " << name
         << "\nurl = \"http://127.0.0.1:" << process::FreePorts(kGpus)
         << "\"\ngpus = [" << absl::StrJoin(gpus, ", ") << "]\ncommand = ["
         << Quoted(process::ProgramFolder() + "/tinyserve")
         << ", \"--view\", \"--model\", " << name
         << ", \"--port\", \"{port}\", \"--max-model-len\", \"512\""
         << ", \"--page\", \"" << kPageKib << "KiB\""
         << ", \"--block-tokens\", \"" << kBlockTokens << "\""
         << ", \"--max-num-seqs\", \"" << kMostSequences << "\""
         << ", \"--max-num-batched-tokens\", \"" << kChunkTokens << "\""
         << ", \"--step-base-us\", \"" << kBaseUs << "\""
         << ", \"--step-token-us\", \"" << kTokenUs << "\""
         << ", \"--step-sequence-us\", \"" << kSequenceUs << "\"]\n";
  }
}

std::unique_ptr<Program> PlannedSite::Launch(std::vector<std::string> words) {
  const std::string log =
      absl::StrCat(folder_.path(), "/", ++launched_, "-", words[0]);
  words[0] = process::ProgramFolder() + "/" + words[0];
  return std::make_unique<Program>(log, std::move(words), environment_,
                                   SIGTERM);
}

std::string PlannedSite::Fsctl(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"fsctl"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto fsctl = Launch(std::move(words));
  return fsctl->EndsWithin(process::kPatience) && fsctl->Wait() == 0
             ? fsctl->Printed()
             : "";
}

}  // namespace fineserve::bench
