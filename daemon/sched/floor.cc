#include "daemon/sched/floor.h"

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

double Floor::OwedAt(const Flow& flow) {
  return flow.paid + flow.waiting.begin()->second.second;
}

template <typename Change>
void Floor::Update(const Key& key, Change change) {
  const auto [place, is_new] = flows_.try_emplace(key);
  Flow& flow = place->second;
  if (is_new) {
    flow.paid = clock_;
  } else if (!flow.waiting.empty()) {
    turns_.erase({OwedAt(flow), key});
  }
  change(&flow);
  if (flow.waiting.empty()) {
    flows_.erase(place);
  } else {
    turns_.emplace(OwedAt(flow), key);
  }
}

void Floor::Add(const Queued& request) {
  const Waiting& w = request.waiting;
  Update(KeyOf(request), [&](Flow* flow) {
    flow->waiting.insert({w.deadline, {w.id, w.tokens}});
  });
}

void Floor::Remove(const Queued& request) {
  const Waiting& w = request.waiting;
  Update(KeyOf(request), [&](Flow* flow) {
    flow->waiting.erase({w.deadline, {w.id, w.tokens}});
  });
}

void Floor::Started(const Queued& request) {
  const double tokens = request.waiting.tokens;
  const Key key = KeyOf(request);
  // Never ahead of the clock: a flow that did well owes nothing later.
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
  return flows_.at(turns_.begin()->second).waiting.begin()->second.first;
}

}  // namespace fineserve::sched
