#include "daemon/proxy/admission/model_waits.h"

#include <cmath>

#include "daemon/contract/wire/message.h"

namespace fineserve::proxy {

void ModelWaits::Note(const wire::WelcomeT& welcome) {
  waits_.clear();
  for (const auto& wait : welcome.waits) {
    waits_[wait->model] = {static_cast<double>(wait->wait_us), wait->full,
                           wait->away, clock_->NowNs()};
  }
}

void ModelWaits::NoteFull(const std::string& model, uint64_t start_us) {
  waits_[model] = {static_cast<double>(start_us), /*full=*/true, /*away=*/false,
                   clock_->NowNs()};
}

void ModelWaits::Sent(const std::string& model, uint32_t prompt_tokens) {
  const auto reported = waits_.find(model);
  if (reported != waits_.end()) reported->second.Sent(prompt_tokens);
}

void ModelWaits::Ended() {
  for (auto& [model, wait] : waits_) wait.SetFull(false);
}

const config::StepProfile* ModelWaits::ProfileOf(
    const std::string& model) const {
  const size_t index = fleet_->ModelIndex(model);
  if (index == fleet_->models.size()) return nullptr;
  const auto& profile = fleet_->models[index].profile;
  return profile ? &*profile : nullptr;
}

double ModelWaits::PredictedUs(const std::string& model) const {
  const auto reported = waits_.find(model);
  if (reported == waits_.end()) return 0;
  const config::StepProfile* profile = ProfileOf(model);
  return reported->second.Us(profile == nullptr ? 0 : profile->per_token_us,
                             clock_->NowNs());
}

double ModelWaits::PrefillUs(const std::string& model, double tokens) const {
  // Heuristic for a model without a profile: the figure of an 8B model on an
  // H100.
  constexpr double kUnknownUs = 50;
  constexpr double kSameUs = 1000;
  const config::StepProfile* profile = ProfileOf(model);
  const double token_us =
      profile == nullptr ? kUnknownUs : profile->per_token_us;
  return std::trunc(token_us * tokens / kSameUs) * kSameUs;
}

bool ModelWaits::IsFull(const std::string& model) const {
  const auto reported = waits_.find(model);
  return reported != waits_.end() && reported->second.full();
}

bool ModelWaits::IsAway(const std::string& model) const {
  const auto reported = waits_.find(model);
  return reported != waits_.end() && reported->second.away();
}

}  // namespace fineserve::proxy
