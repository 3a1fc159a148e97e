#include "daemon/proxy/admission/demand_book.h"

#include <algorithm>

#include "daemon/contract/wire/message.h"

namespace fineserve::proxy {
namespace {

// An SLO comes from the client and may be any number.
uint64_t SloNs(const AdmissionRequest& request,
               const config::FleetModel& model) {
  constexpr int64_t kLongestUs = int64_t{1} << 50;
  const int64_t us = request.slo_ttft_us > 0
                         ? request.slo_ttft_us
                         : int64_t{model.slo_ttft_ms} * 1000;
  return static_cast<uint64_t>(std::min(us, kLongestUs)) * 1000;
}

}  // namespace

void DemandBook::Submitted(const AdmissionRequest& request,
                           const config::FleetModel& model) {
  wire::DemandCounts& counts = models_[model.name];
  const bool tried_before = !request.avoid_engine.empty();
  if (!tried_before && open_.count(request.id) == 0) {
    ++counts.arrived;
    counts.prompt_tokens += request.prompt_tokens;
  }
  open_[request.id] = {&counts, request.arrived_ns + SloNs(request, model),
                       tried_before};
}

void DemandBook::Refused(uint64_t id) {
  const auto place = open_.find(id);
  if (place == open_.end()) return;
  ++place->second.counts->late;
  open_.erase(place);
}

void DemandBook::FirstToken(uint64_t id) {
  const auto place = open_.find(id);
  if (place == open_.end() || place->second.had_first_token) return;
  Open& request = place->second;
  request.had_first_token = true;
  const bool on_time = clock_->NowNs() <= request.deadline_ns;
  ++(on_time ? request.counts->on_time : request.counts->late);
}

void DemandBook::Finished(uint64_t id, uint32_t output_tokens,
                          Outcome outcome) {
  const auto place = open_.find(id);
  if (place == open_.end()) return;
  const Open& request = place->second;
  if (outcome == Outcome::kDone) {
    ++request.counts->answered;
    request.counts->output_tokens += output_tokens;
  }
  // A first attempt does not count as late: a second one follows it and shows
  // the request's outcome.
  if (outcome == Outcome::kEngineGone && request.tried_before &&
      !request.had_first_token) {
    ++request.counts->late;
  }
  open_.erase(place);
}

void DemandBook::Tell(wire::HelloT* hello) const {
  for (const auto& [model, counts] : models_) {
    hello->demand.push_back(wire::DemandOf(model, counts));
  }
}

}  // namespace fineserve::proxy
