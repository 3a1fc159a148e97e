#include "daemon/proxy/admission/engine_errors.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
void Breaker::Sent(uint64_t now_ns) {
  if (!is_open() || !Lets(now_ns)) return;
  on_trial_ = true;
  lets_at_ns_ = now_ns + rest_ns_;
}

// While the breaker is open and no request is on trial, the requests that end
// were sent earlier; they show nothing new.
void Breaker::Answered() {
  if (!is_open()) {
    Judge(/*failed=*/false);
  } else if (on_trial_) {
    *this = Breaker();
  }
}

void Breaker::Failed(uint64_t now_ns) {
  if (is_open()) {
    if (on_trial_) Rest(std::min(2 * rest_ns_, kMostRestNs), now_ns);
    return;
  }
  Judge(/*failed=*/true);
  const bool half =
      judged_ == kJudged &&
      2 * static_cast<uint32_t>(std::popcount(failed_)) >= kJudged;
  if (in_a_row_ >= kMostInARow || half) Rest(kLeastRestNs, now_ns);
}

void Breaker::Judge(bool failed) {
  in_a_row_ = failed ? in_a_row_ + 1 : 0;
  judged_ = std::min(judged_ + 1, kJudged);
  failed_ = (failed_ << 1 | (failed ? 1 : 0)) & ((1u << kJudged) - 1);
}

void Breaker::Rest(uint64_t rest_ns, uint64_t now_ns) {
  rest_ns_ = rest_ns;
  lets_at_ns_ = now_ns + rest_ns;
  on_trial_ = false;
}

void EngineErrors::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = std::move(fleet);
  for (auto it = engines_.begin(); it != engines_.end();) {
    it = fleet_->Engine(it->first) ? std::next(it) : engines_.erase(it);
  }
}

template <typename Act>
bool EngineErrors::Change(const std::string& engine, Act act) {
  Engine& its = engines_[engine];
  const bool let = its.breaker.Lets(clock_->NowNs());
  act(&its);
  return let != its.breaker.Lets(clock_->NowNs());
}

bool EngineErrors::Sent(const std::string& engine) {
  return Change(engine,
                [this](Engine* e) { e->breaker.Sent(clock_->NowNs()); });
}

bool EngineErrors::Answered(const std::string& engine) {
  return Change(engine, [](Engine* e) { e->breaker.Answered(); });
}

bool EngineErrors::Failed(const std::string& engine, EngineError error) {
  return Change(engine, [this, error](Engine* e) {
    const bool was_ill = IsIll(*e);
    e->last = error;
    e->failed_ns.push_back(clock_->NowNs());
    if (e->failed_ns.size() > kMany) e->failed_ns.pop_front();
    // Skips older failures, which are not part of the present trouble.
    const auto first = std::find_if(
        e->failed_ns.begin(), e->failed_ns.end(),
        [this](uint64_t ns) { return clock_->NowNs() - ns < kManyNs; });
    if (!was_ill) e->ill_ns = *first;
    e->breaker.Failed(clock_->NowNs());
  });
}

bool EngineErrors::Lets(const std::string& engine) const {
  const auto known = engines_.find(engine);
  return known == engines_.end() || known->second.breaker.Lets(clock_->NowNs());
}

bool EngineErrors::Shuns(const std::string& engine) const {
  return !Lets(engine) && AnotherServes(engine);
}

bool EngineErrors::AnotherServes(const std::string& engine) const {
  const config::FleetEngine* its = fleet_->Engine(engine);
  return its != nullptr &&
         std::any_of(fleet_->engines.begin(), fleet_->engines.end(),
                     [&](const config::FleetEngine& other) {
                       return other.model == its->model &&
                              other.name != engine && Lets(other.name) &&
                              can_serve_(other.name);
                     });
}

bool EngineErrors::FailsMany(const Engine& engine) const {
  return engine.failed_ns.size() == kMany &&
         clock_->NowNs() - engine.failed_ns.front() < kManyNs;
}

bool EngineErrors::IsIll(const Engine& engine) const {
  return engine.breaker.is_open() || FailsMany(engine);
}

uint64_t EngineErrors::TroubleSince(const std::string& engine) const {
  const auto known = engines_.find(engine);
  return known == engines_.end() || !IsIll(known->second)
             ? 0
             : known->second.ill_ns;
}

std::string EngineErrors::TroubleOf(const std::string& engine) const {
  const auto known = engines_.find(engine);
  if (known == engines_.end() || !IsIll(known->second)) return "";
  if (!known->second.breaker.is_open()) {
    return absl::StrCat("it fails requests, more than ", kMany - 1,
                        " in the last minute: ", TextOf(known->second.last).why,
                        "; its own log says why");
  }
  return absl::StrCat(
      TextOf(known->second.last).why, ": ",
      AnotherServes(engine)
          ? "its model's other engines get the requests, but for a trial now "
            "and then"
          : "it still gets requests, because no other engine of its model "
            "serves",
      "; its own log says why");
}

}  // namespace fineserve::proxy
