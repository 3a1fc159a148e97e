#include "daemon/contract/wire/demand_counts.h"

#include <algorithm>
#include <iterator>

#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

constexpr uint64_t DemandCounts::*kCounts[] = {
    &DemandCounts::arrived,  &DemandCounts::prompt_tokens,
    &DemandCounts::answered, &DemandCounts::output_tokens,
    &DemandCounts::on_time,  &DemandCounts::late};
static_assert(sizeof(DemandCounts) == std::size(kCounts) * sizeof(uint64_t));

}  // namespace

bool DemandCounts::GoesOnFrom(const DemandCounts& before) const {
  return std::all_of(std::begin(kCounts), std::end(kCounts),
                     [&](auto count) { return this->*count >= before.*count; });
}

DemandCounts DemandCounts::Since(const DemandCounts& before) const {
  DemandCounts since;
  for (const auto count : kCounts) since.*count = this->*count - before.*count;
  return since;
}

DemandCounts& DemandCounts::operator+=(const DemandCounts& more) {
  for (const auto count : kCounts) {
    uint64_t& sum = this->*count;
    sum += std::min(more.*count, UINT64_MAX - sum);
  }
  return *this;
}

DemandCounts CountsOf(const ModelDemandT& d) {
  return {d.arrived,       d.prompt_tokens, d.answered,
          d.output_tokens, d.on_time,       d.late};
}

std::unique_ptr<ModelDemandT> DemandOf(const std::string& model,
                                       const DemandCounts& counts) {
  auto demand = std::make_unique<ModelDemandT>();
  demand->model = model;
  demand->arrived = counts.arrived;
  demand->prompt_tokens = counts.prompt_tokens;
  demand->answered = counts.answered;
  demand->output_tokens = counts.output_tokens;
  demand->on_time = counts.on_time;
  demand->late = counts.late;
  return demand;
}

}  // namespace fineserve::wire
