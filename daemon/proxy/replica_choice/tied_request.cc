#include "daemon/proxy/replica_choice/tied_request.h"

#include <algorithm>

#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::proxy {

TiedRequest::TiedRequest(const std::vector<Candidate>& order, bool charged) {
  for (const Candidate& c : order)
    places_.push_back({c.place, c.trouble, c.load == 0});
  if (charged) charged_ = order.front().place;
}

bool TiedRequest::Any(State state) const {
  return std::any_of(places_.begin(), places_.end(),
                     [&](const Place& p) { return p.state == state; });
}

// True if the place may be asked while the request waits elsewhere: its trouble
// must not exceed the first place's, and the model must not have to come back.
bool TiedRequest::MayJoin(const Place& p) const {
  return p.state == State::kLeft && p.trouble <= places_.front().trouble &&
         !ModelOnGpu::IsAway(p.trouble);
}

bool TiedRequest::IsDue(const Place& p) const {
  if (p.state != State::kLeft) return false;
  if (Any(State::kWaits)) return MayJoin(p);
  if (has_reason_ && ModelOnGpu::IsAway(p.trouble)) {
    return p.is_idle && !calls_back_;
  }
  return !has_reason_ || ModelOnGpu::Answers(p.trouble);
}

absl::optional<size_t> TiedRequest::Next() {
  if (Any(State::kAsked)) return absl::nullopt;
  for (Place& p : places_) {
    if (!IsDue(p)) continue;
    p.state = State::kAsked;
    return p.place;
  }
  return absl::nullopt;
}

bool TiedRequest::MayAskMore() const {
  return std::any_of(places_.begin(), places_.end(),
                     [this](const Place& p) { return MayJoin(p); });
}

void TiedRequest::Heard(size_t place, Answer answer) {
  for (Place& p : places_) {
    if (p.place != place || p.state == State::kLeft) continue;
    p.state = answer == Answer::kWaits ? State::kWaits : State::kOut;
    calls_back_ |= answer == Answer::kRefused && ModelOnGpu::IsAway(p.trouble);
  }
  has_reason_ |= answer == Answer::kRefused;
}

void TiedRequest::Lost(size_t place) {
  for (Place& p : places_) {
    if (p.place != place) continue;
    p.state = State::kLeft;
    p.trouble = std::max(p.trouble, ModelOnGpu::kNoDaemon);
  }
  std::stable_sort(places_.begin(), places_.end(),
                   [](auto& a, auto& b) { return a.trouble < b.trouble; });
}

bool TiedRequest::over() const {
  return !Any(State::kAsked) && !Any(State::kWaits) &&
         std::none_of(places_.begin(), places_.end(),
                      [this](const Place& p) { return IsDue(p); });
}

std::vector<size_t> TiedRequest::Others(size_t place) const {
  std::vector<size_t> others;
  for (const Place& p : places_) {
    const bool has = p.state == State::kAsked || p.state == State::kWaits;
    if (has && p.place != place) others.push_back(p.place);
  }
  return others;
}

}  // namespace fineserve::proxy
