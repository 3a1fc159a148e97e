#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_FAKE_HOST_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_FAKE_HOST_H_

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/scheduling/local/policy/adaptive_batch.h"
#include "daemon/scheduling/local/policy/policy.h"

namespace fineserve::sched {

// A host whose engines are set by a test or bench. Starting a request changes
// only what is left of an engine's caps.
class FakeHost final : public Host {
 public:
  struct Engine {
    ModelId model{0};
    Predictor predictor;
    Caps caps{UINT32_MAX, UINT64_MAX};
    std::vector<RequestId> started = {};
    uint64_t started_tokens = 0;
  };

  std::vector<ReplicaId> EnginesOf(ModelId model) const override {
    std::vector<ReplicaId> found;
    for (const auto& [id, engine] : engines) {
      if (engine.model == model) found.push_back(id);
    }
    return found;
  }
  Predictor Predict(ReplicaId engine, Micros) const override {
    return engines.at(engine).predictor;
  }
  bool Takes(ReplicaId id, const Queued& request, Micros) override {
    const Engine& e = engines.at(id);
    if (e.started.size() >= e.caps.requests) return false;
    return e.started.empty() ||
           e.started_tokens + request.waiting.tokens <= e.caps.tokens;
  }
  void Start(const Queued& request, ReplicaId id, Micros) override {
    Engine& e = engines.at(id);
    e.started.push_back(request.waiting.id);
    e.started_tokens += request.waiting.tokens;
  }
  void Drop(const Queued& request, Micros) override {
    dropped.push_back(request.waiting.id);
  }

  // Clears what was started and dropped, as if the engines had taken it.
  void Forget() {
    for (auto& [id, engine] : engines) {
      engine.started.clear();
      engine.started_tokens = 0;
    }
    dropped.clear();
  }

  std::map<ReplicaId, Engine> engines;
  std::vector<RequestId> dropped;
};

inline constexpr ReplicaId kEngine{1};
// 10 µs a token and nothing else.
inline constexpr Predictor kTenPerToken{{0, 10, 0}, 1'000'000, 0, 0, 1};

// Returns a host with only kEngine, which serves the first model.
inline FakeHost OneEngine(Predictor predictor = kTenPerToken) {
  FakeHost host;
  host.engines[kEngine] = {ModelId{0}, predictor};
  return host;
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_FAKE_HOST_H_
