#include "daemon/scheduling/local/policy/floor.h"

#include <algorithm>

namespace fineserve::sched {
namespace {

uint32_t LengthClass(uint32_t tokens) {
  if (tokens < 256) return 0;
  if (tokens < 1024) return 1;
  return tokens < 4096 ? 2 : 3;
}

}  // namespace

Floor::Key Floor::KeyOf(const Queued& request) {
  return {request.tenant, LengthClass(request.waiting.tokens)};
}

absl::optional<double> Floor::OwedAt(const Flow& flow) {
  if (flow.waiting.empty()) return absl::nullopt;
  return flow.paid + flow.waiting.First().tokens;
}

template <typename Change>
void Floor::Update(const Key& key, Change change) {
  const auto [place, is_new] = flows_.try_emplace(key);
  Flow& flow = place->second;
  if (is_new) flow.paid = clock_;
  const auto before = OwedAt(flow);
  change(&flow);
  const auto after = OwedAt(flow);
  if (before != after) {
    if (before) turns_.erase({*before, key});
    if (after) turns_.emplace(*after, key);
  }
  if (!after) flows_.erase(place);
}

Calendar::Handle Floor::Add(const Queued& request) {
  Calendar::Handle handle;
  Update(KeyOf(request),
         [&](Flow* flow) { handle = flow->waiting.Add(request.waiting); });
  return handle;
}

void Floor::Remove(const Queued& request, Calendar::Handle handle) {
  Update(KeyOf(request), [&](Flow* flow) { flow->waiting.Remove(handle); });
}

void Floor::Started(const Queued& request) {
  const double tokens = request.waiting.tokens;
  const Key key = KeyOf(request);
  // A flow is never ahead of the clock, so a flow that did well owes nothing
  // later.
  if (flows_.count(key) != 0) {
    Update(key, [&](Flow* flow) {
      flow->paid = std::min(flow->paid + tokens, clock_);
    });
  }
  if (flows_.empty()) return;
  clock_ += share_ * tokens / static_cast<double>(flows_.size());
}

absl::optional<RequestId> Floor::Owed() const {
  if (turns_.empty() || turns_.begin()->first > clock_) return absl::nullopt;
  if (share_ <= 0) return absl::nullopt;
  return flows_.at(turns_.begin()->second).waiting.First().id;
}

}  // namespace fineserve::sched
