#include "daemon/node/local_daemons.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::node {
namespace {

// Reports are requested every second.
constexpr uint64_t kFreshNs = 4'000'000'000;

}  // namespace

LocalDaemons::LocalDaemons(const config::ClusterSettings& cluster,
                           const config::Machine& machine,
                           const cluster::DaemonDirectory* directory,
                           const Clock* clock)
    : directory_(directory), clock_(clock) {
  for (const std::string& gpu : machine.gpus) {
    daemons_[gpu].record.gpu = gpu;
    daemons_[gpu].record.port = cluster.PortOf(gpu);
  }
}

void LocalDaemons::Turn() {
  for (auto& [gpu, daemon] : daemons_) {
    if (!daemon.socket) {
      absl::StatusOr<wire::ClientSocket> socket = directory_->Connect(gpu);
      if (socket.ok()) daemon.socket.emplace(*std::move(socket));
    }
    if (!daemon.socket) continue;
    Receive(&daemon);
    // A notice without a plan asks only for the report.
    daemon.socket->Send(wire::Encode(0, 0, wire::PlanNoticeT()));
    Receive(&daemon);
  }
}

void LocalDaemons::Receive(Daemon* daemon) {
  while (const absl::optional<std::string> bytes = daemon->socket->Receive()) {
    const absl::StatusOr<wire::MessageT> message = wire::Decode(*bytes);
    if (!message.ok()) continue;
    const wire::ReportT* report = message->body.AsReport();
    if (report == nullptr) continue;
    daemon->heard_ns = clock_->NowNs();
    cluster::DaemonRecord& r = daemon->record;
    r.gpu = report->gpu;
    r.memory_bytes = report->memory_bytes;
    r.pool_bytes = report->pool_bytes;
    r.used_bytes = report->used_bytes;
    r.plan_term = report->plan_term;
    r.plan_number = report->plan_number;
    r.proxies = report->proxies;
    r.refused = wire::CountsOf(report->refused.get());
    r.plans_refused = report->plans_refused;
    r.engines = static_cast<uint32_t>(
        std::count_if(report->engines.begin(), report->engines.end(),
                      [](const auto& engine) { return engine->serves; }));
  }
}

bool LocalDaemons::IsFresh(const Daemon& daemon) const {
  return daemon.heard_ns != 0 && clock_->NowNs() - daemon.heard_ns < kFreshNs;
}

std::vector<cluster::DaemonRecord> LocalDaemons::Records() const {
  std::vector<cluster::DaemonRecord> records;
  for (const auto& [gpu, daemon] : daemons_) {
    records.push_back(daemon.record);
    records.back().answers = IsFresh(daemon);
  }
  return records;
}

bool LocalDaemons::AnyAnswers() const {
  return std::any_of(daemons_.begin(), daemons_.end(),
                     [this](const auto& d) { return IsFresh(d.second); });
}

}  // namespace fineserve::node
