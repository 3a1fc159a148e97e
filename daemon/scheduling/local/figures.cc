// The reports of LocalScheduler about itself; local_scheduler.cc makes the
// decisions.

#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::sched {

const ModelSpec& LocalScheduler::model(ModelId id) const {
  return ModelOf(id).spec;
}

ModelFigures LocalScheduler::Figures(ModelId id) const {
  ModelFigures figures = ModelOf(id).figures;
  figures.expected_output = ModelOf(id).expected_output;
  return figures;
}

const RecentService& LocalScheduler::Recent(ModelId id) const {
  return ModelOf(id).recent;
}

std::map<ReplicaId, EngineFigures> LocalScheduler::Engines(Micros now) const {
  std::map<ReplicaId, EngineFigures> all;
  for (const auto& [id, engine] : engines_) {
    const ModelSpec& spec = ModelOf(engine.model).spec;
    EngineFigures& f = all[id];
    static_cast<EngineWork&>(f) = WorkOf(engine);
    f.model = engine.model;
    f.kappa = engine.load.kappa();
    f.caps = engine.load.LiveCaps(spec, now);
    f.free_tokens = engine.load.free_tokens();
    f.backlog_tokens = engine.load.Predict(spec, now).backlog_tokens;
  }
  return all;
}

EngineWork LocalScheduler::WorkOf(const Engine& engine) const {
  const ModelFigures& model = ModelOf(engine.model).figures;
  return {engine.load.running(), engine.load.held_tokens(),
          RoomForPrompts(engine.load.kv(), model.queued, model.queued_tokens)};
}

absl::optional<EngineWork> LocalScheduler::WorkOf(ReplicaId engine) const {
  const auto known = engines_.find(engine);
  if (known == engines_.end()) return absl::nullopt;
  return WorkOf(known->second);
}

std::vector<RequestView> LocalScheduler::Requests() const {
  std::vector<RequestView> all;
  for (const auto& [id, r] : requests_) {
    if (r.refusal) continue;
    all.push_back(
        {&r.submission, r.engine, r.degraded, r.queued.waiting.deadline});
  }
  return all;
}

}  // namespace fineserve::sched
