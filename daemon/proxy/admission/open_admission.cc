#include "daemon/proxy/admission/open_admission.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::proxy {

OpenAdmission::OpenAdmission(std::shared_ptr<const config::Fleet> fleet,
                             Knows serves, Knows may_take)
    : fleet_(std::move(fleet)),
      serves_(std::move(serves)),
      may_take_(std::move(may_take)) {}

OpenAdmission::Rank OpenAdmission::RankOf(
    const std::string& engine, const AdmissionRequest& request) const {
  return {!serves_(engine), engine == request.avoid_engine,
          plan_ != nullptr && !plan_->LetsIn(engine), outstanding(engine)};
}

const config::FleetEngine* OpenAdmission::LeastLoaded(
    const AdmissionRequest& request, bool* any) const {
  const config::FleetEngine* best = nullptr;
  Rank best_rank = {};
  *any = false;
  for (const config::FleetEngine& engine : fleet_->engines) {
    if (engine.model != request.model) continue;
    *any = true;
    if (!may_take_(engine.name)) continue;
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
    verdict.why = any ? absl::StrCat("each engine that serves ", request.model,
                                     " is out of reach or about to end")
                      : absl::StrCat("no engine serves ", request.model);
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
  tokens_[engine] += uint64_t{request.prompt_tokens} + output;
}

void OpenAdmission::FirstToken(uint64_t id) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  Running& running = it->second;
  tokens_[running.engine] -= running.prompt_tokens;
  running.prompt_tokens = 0;
}

void OpenAdmission::Finished(uint64_t id) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  const Running& running = it->second;
  tokens_[running.engine] -= running.prompt_tokens + running.output_tokens;
  running_.erase(it);
}

uint64_t OpenAdmission::outstanding(const std::string& engine) const {
  const auto it = tokens_.find(engine);
  return it == tokens_.end() ? 0 : it->second;
}

}  // namespace fineserve::proxy
