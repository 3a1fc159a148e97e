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
#include "tests/process/toml_text.h"

namespace fineserve::bench {
namespace {

constexpr unsigned kPauseUs = 100'000;

using Fleet = PlannedFleet;

std::string PlannerText() {
  return absl::StrCat(
      "[planner]\nperiod = ", Fleet::kPeriod, "\nwindow = ", Fleet::kWindow,
      "\nleast_gain = ", Fleet::kLeastGain, "\ncool_down = ", Fleet::kCoolDown,
      "\nstart = ", Fleet::kStart, "\ndrain = ", Fleet::kDrain, "\n");
}

}  // namespace

PlannedSite::PlannedSite()
    : service_("replan", {Fleet::kGpus, Fleet::kMemoryMib, Fleet::kPoolMib,
                          Fleet::kSlabMib}) {}

bool PlannedSite::StartFrozen(const Placing& placing) {
  const std::vector<std::string> gpus = service_.FindGpus();
  if (gpus.empty()) return false;
  for (const std::string& model : Fleet::Models()) WriteProfile(model);
  WriteFleet(placing, gpus);
  if (!service_.Start(FleetPath()) || !AwaitPlan()) return false;
  if (!AwaitAnswers(port(), Fleet::Models())) {
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
  std::ofstream(service_.Path(model + ".toml"))
      << config::ProfileText(Fleet::Profile(model));
}

void PlannedSite::WriteFleet(const Placing& placing,
                             std::vector<std::string> gpus) const {
  for (std::string& gpu : gpus) gpu = process::Quoted(gpu);
  if (placing.on_one_gpu) gpus.resize(1);
  std::ofstream file(FleetPath());
  file << "[proxy]\nlisten = \"127.0.0.1:" << port()
       << "\"\nadmin = \"127.0.0.1:0\"\nwithout_daemon = \"fail_closed\"\n"
       << "drain = 1\n"
       << PlannerText();
  for (size_t m = 0; m < Fleet::Models().size(); ++m) {
    const std::string name = process::Quoted(Fleet::Models()[m]);
    file << "[[model]]\nname = " << name
         << "\nslo_ttft_ms = " << 1000 * Fleet::kSloTtft
         << "\nmax_batch = " << Fleet::kMostSequences
         << "\nchunk_tokens = " << Fleet::kChunkTokens
         << "\nprofile = " << process::Quoted(Fleet::Models()[m] + ".toml")
         << "\nexpected = { rate = " << placing.expected_rates[m]
         << ", prompt_tokens = " << Fleet::kLengths.input
         << ", output_tokens = " << Fleet::kLengths.output << " }\n"
         << "[[engine]]\nname = " << name << "\nmodel = " << name
         << "\nurl = \"http://127.0.0.1:" << process::FreePorts(Fleet::kGpus)
         << "\"\ngpus = [" << absl::StrJoin(gpus, ", ") << "]\ncommand = ["
         << process::Quoted(process::ProgramFolder() + "/tinyserve")
         << ", \"--view\", \"--model\", " << name
         << ", \"--port\", \"{port}\", \"--max-model-len\", \""
         << Fleet::kLongestTokens << "\""
         << ", \"--page\", \"" << Fleet::kPageKib << "KiB\""
         << ", \"--block-tokens\", \"" << Fleet::kBlockTokens << "\""
         << ", \"--max-num-seqs\", \"" << Fleet::kMostSequences << "\""
         << ", \"--max-num-batched-tokens\", \"" << Fleet::kChunkTokens << "\""
         << ", \"--step-base-us\", \"" << Fleet::kBaseUs << "\""
         << ", \"--step-token-us\", \"" << Fleet::kTokenUs << "\""
         << ", \"--step-sequence-us\", \"" << Fleet::kSequenceUs << "\"]\n";
  }
}

}  // namespace fineserve::bench
