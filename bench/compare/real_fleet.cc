#include "bench/compare/real_fleet.h"

#include <stdlib.h>

#include <chrono>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/soak/interrupt.h"
#include "tests/process/child_process.h"
#include "tests/process/free_port.h"
#include "tools/openai/page.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

constexpr std::chrono::seconds kPagePatience(10);

// The value on the line of Prometheus text that begins with `name`; 0 if none
// does.
uint64_t Metric(const std::string& text, const std::string& name) {
  const size_t at = ("\n" + text).find("\n" + name + "{");
  if (at == std::string::npos) return 0;
  const size_t value = text.find("} ", at);
  return value == std::string::npos
             ? 0
             : static_cast<uint64_t>(strtod(text.c_str() + value + 2, nullptr));
}

}  // namespace

RealFleet::RealFleet(const FleetShape& shape)
    : service_("compare", Fleet::GpusOf(shape)), shape_(shape) {
  for (size_t e = 0; e < Fleet::Engines(shape).size(); ++e) {
    engine_ports_.push_back(process::FreePort());
  }
}

std::string RealFleet::FleetText(EnginePlacement placement) const {
  return Fleet::FleetText(gpus_, service_.port(), engine_ports_,
                          process::ProgramFolder() + "/tinyserve",
                          shape_.With(placement));
}

bool RealFleet::Start() {
  gpus_ = service_.FindGpus();
  if (gpus_.empty()) return false;
  std::ofstream(fleet_path()) << FleetText(shape_.placement);
  if (!service_.Start(fleet_path())) return false;
  const bool answers = AwaitAnswers(service_.port(), Fleet::Models(shape_));
  CatchInterrupts();  // the clients have put the default back
  return answers || service_.Fail("the engines did not answer in time; " +
                                  service_.About());
}

RunOutcome RealFleet::Send(const workload::Trace& trace) {
  const Sending sending = {Fleet::kSlo, /*timeout_s=*/120, /*progress=*/true};
  RunOutcome run = bench::Send(service_.port(), trace, sending);
  CatchInterrupts();
  return run;
}

bool RealFleet::Read(Counters* counters) const {
  *counters = {};
  for (const uint16_t port : engine_ports_) {
    const openai::Target engine = {"127.0.0.1", absl::StrCat(port), "", ""};
    const auto page = openai::GetPage(engine, "/metrics", kPagePatience);
    if (!page.ok()) {
      return service_.Fail(std::string(page.status().message()));
    }
    counters->preemptions += Metric(page->body, "vllm:num_preemptions_total");
    counters->late_steps += Metric(page->body, "tinyserve:late_steps_total");
  }
  return true;
}

}  // namespace fineserve::bench
