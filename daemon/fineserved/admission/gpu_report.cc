#include "daemon/fineserved/admission/gpu_report.h"

#include <memory>
#include <utility>

#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::admission {

wire::ReportT ReportOf(const std::string& gpu, const GpuFacts& facts,
                       const std::vector<ServingEngine>& engines,
                       absl::FunctionRef<bool(const std::string&)> serves,
                       const sched::LocalScheduler& scheduler,
                       sched::Micros now) {
  wire::ReportT report;
  report.gpu = gpu;
  report.memory_bytes = facts.memory_bytes;
  report.pool_bytes = facts.pool_bytes;
  report.used_bytes = facts.used_bytes;
  report.refused = wire::OnWire(facts.refused);
  report.host_bytes = facts.host_bytes;
  const auto figures = scheduler.Engines(now);
  for (uint32_t i = 0; i < engines.size(); ++i) {
    auto reported = std::make_unique<wire::EngineReportT>();
    reported->name = engines[i].name;
    reported->serves = serves(engines[i].name);
    const auto known = figures.find(sched::ReplicaId{i});
    if (known != figures.end()) reported->running = known->second.running;
    report.engines.push_back(std::move(reported));
  }
  return report;
}

}  // namespace fineserve::admission
