#include "bench/replan/planned_site.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/serving/clients.h"
#include "bench/soak/interrupt.h"
#include "daemon/config/profile_file.h"
#include "tests/process/child_process.h"
#include "tests/process/eventually.h"
#include "tests/process/free_port.h"

namespace fineserve::bench {
namespace {

constexpr int kGpus = 2;
constexpr uint32_t kMib = 1 << 20;
constexpr uint32_t kPoolMib = 256, kSlabMib = 8;
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
    : service_("replan", {kGpus, kMemoryMib, kPoolMib, kSlabMib}) {}

bool PlannedSite::StartFrozen(const Placing& placing) {
  const std::vector<std::string> gpus = service_.FindGpus();
  if (gpus.empty()) return false;
  for (const std::string& model : Models()) WriteProfile(model);
  WriteFleet(placing, gpus);
  if (!service_.Start(Fleet()) || !AwaitPlan()) return false;
  if (!AwaitAnswers(port(), Models())) {
    return service_.Fail("the engines did not answer in time; " +
                         service_.About() + service_.Fsctl({"plan"}));
  }
  return !service_.Fsctl({"plan", "--freeze"}).empty() ||
         service_.Fail("the plan cannot freeze");
}

bool PlannedSite::Thaw() {
  return !service_.Fsctl({"plan", "--thaw"}).empty() ||
         service_.Fail("the plan cannot thaw");
}

uint64_t PlannedSite::PlanNumber() {
  return bench::PlanNumber(service_.Fsctl({"plan", "--json"}));
}

Moves PlannedSite::MovesSince(uint64_t plan_number) {
  return MovesIn(service_.Fsctl({"plan", "--history", "200", "--json"}),
                 plan_number);
}

bool PlannedSite::AwaitPlan() {
  const bool planned = process::Eventually([&] {
    usleep(kPauseUs);  // fsctl is a process each time
    return Interrupted() || IsAtRest(service_.Fsctl({"plan", "--json"}));
  });
  return (planned && !Interrupted()) ||
         service_.Fail("there is no plan; " + service_.About());
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
  std::ofstream(service_.Path(model + ".toml")) << config::ProfileText(profile);
}

void PlannedSite::WriteFleet(const Placing& placing,
                             std::vector<std::string> gpus) const {
  for (std::string& gpu : gpus) gpu = Quoted(gpu);
  if (placing.on_one_gpu) gpus.resize(1);
  std::ofstream file(Fleet());
  file << "[proxy]\nlisten = \"127.0.0.1:" << port()
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

}  // namespace fineserve::bench
