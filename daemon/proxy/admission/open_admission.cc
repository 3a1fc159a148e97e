#include "daemon/proxy/admission/open_admission.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {

OpenAdmission::OpenAdmission(std::shared_ptr<const config::Fleet> fleet,
                             Knows serves)
    : fleet_(std::move(fleet)), serves_(std::move(serves)) {}

OpenAdmission::Rank OpenAdmission::RankOf(
    const std::string& engine, const AdmissionRequest& request) const {
  return {!Serves(engine), engine == request.avoid_engine, !LetsIn(engine),
          outstanding(engine)};
}

bool OpenAdmission::IsReachable(const std::string& engine) const {
  const auto it = engines_.find(engine);
  return it == engines_.end() || it->second.reachable;
}

const config::FleetEngine* OpenAdmission::LeastLoaded(
    const AdmissionRequest& request, bool* any) const {
  const config::FleetEngine* best = nullptr;
  Rank best_rank = {};
  *any = false;
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (engine.model != request.model) continue;
    *any = true;
    if (!IsReachable(engine.name)) continue;
    const Rank rank = RankOf(engine.name, request);
    if (best != nullptr && !(rank < best_rank)) continue;
    best = &engine;
    best_rank = rank;
  }
  return best;
}

Verdict OpenAdmission::Choose(const AdmissionRequest& request) const {
  Verdict verdict;
  bool any = false;
  const config::FleetEngine* engine = LeastLoaded(request, &any);
  if (engine == nullptr) {
    verdict.refusal = Refusal::kNoEngine;
    verdict.why = absl::StrCat(
        any ? "no engine can be reached that serves " : "no engine serves ",
        request.model);
    return verdict;
  }
  verdict.admitted = true;
  verdict.engine = engine->name;
  return verdict;
}

void OpenAdmission::Enter(const AdmissionRequest& request,
                          const std::string& engine) {
  const uint32_t output =
      request.max_tokens != 0 ? request.max_tokens : kUnsaidTokens;
  running_[request.id] = {engine, request.prompt_tokens, output};
  engines_[engine].tokens += uint64_t{request.prompt_tokens} + output;
}

void OpenAdmission::Submit(const AdmissionRequest& request,
                           std::function<void(Verdict)> on_verdict) {
  Verdict verdict = Choose(request);
  if (verdict.admitted) Enter(request, verdict.engine);
  on_verdict(std::move(verdict));
}

void OpenAdmission::FirstToken(uint64_t id) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  Running& running = it->second;
  engines_[running.engine].tokens -= running.prompt_tokens;
  running.prompt_tokens = 0;
}

void OpenAdmission::Finished(uint64_t id, uint32_t, uint32_t, Outcome) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  const Running& running = it->second;
  engines_[running.engine].tokens -=
      running.prompt_tokens + running.output_tokens;
  running_.erase(it);
}

void OpenAdmission::SetFleet(std::shared_ptr<const config::Fleet> fleet) {
  fleet_ = std::move(fleet);
}

uint64_t OpenAdmission::outstanding(const std::string& engine) const {
  const auto it = engines_.find(engine);
  return it == engines_.end() ? 0 : it->second.tokens;
}

}  // namespace fineserve::proxy
