#ifndef DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "daemon/contract/wire/newest_plan.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// Admits every request at once, to the engine of its model with the fewest
// outstanding tokens. This is how the proxy decides without a scheduler
// (fail_open), and the baseline for a scheduler. A prompt is outstanding until
// its first token, the expected output until the end. An engine that does not
// serve, as far as is known, gets a request only if its model has no other
// engine; an engine that the plan keeps new requests from comes after those
// that the plan lets serve.
class OpenAdmission {
 public:
  // Expected output of a request that names no max_tokens. Heuristic: the mean
  // answer in ShareGPT is about 200 tokens.
  static constexpr uint32_t kUnsaidTokens = 256;

  // `serves`: whether an engine serves, as far as is known. `may_take`: whether
  // a request that is sent to the engine can be answered. If it cannot, the
  // engine gets no requests, and requests for a model without another engine
  // are refused at once.
  using Knows = std::function<bool(const std::string& engine)>;
  OpenAdmission(
      std::shared_ptr<const config::Fleet> fleet, Knows serves,
      Knows may_take = [](const std::string&) { return true; });

  // `plan` must outlive this object. Until this is called, there is no plan.
  void SetPlan(const wire::NewestPlan* plan) { plan_ = plan; }

  // Returns the verdict on the request now.
  Verdict Choose(const AdmissionRequest& request) const;
  // Books a request that is sent to `engine`, whichever decider chose it. The
  // request counts there until Finished.
  void Enter(const AdmissionRequest& request, const std::string& engine);

  void FirstToken(uint64_t id);
  void Finished(uint64_t id);
  void SetFleet(std::shared_ptr<const config::Fleet> fleet) {
    fleet_ = std::move(fleet);
  }

  // Tokens outstanding on the engine of this name.
  uint64_t outstanding(const std::string& engine) const;

 private:
  struct Running {
    std::string engine;
    uint64_t prompt_tokens = 0;
    uint64_t output_tokens = 0;
  };
  // Sort key, less is better: whether the engine does not serve, whether to
  // avoid it, whether the plan keeps requests from it, and its tokens.
  using Rank = std::tuple<bool, bool, bool, uint64_t>;

  Rank RankOf(const std::string& engine, const AdmissionRequest& request) const;
  // Returns null if no engine may take requests. Sets `any` if the model has an
  // engine at all.
  const config::FleetEngine* LeastLoaded(const AdmissionRequest& request,
                                         bool* any) const;

  std::shared_ptr<const config::Fleet> fleet_;
  const Knows serves_, may_take_;
  const wire::NewestPlan* plan_ = nullptr;
  std::unordered_map<std::string, uint64_t> tokens_;  // by engine
  std::unordered_map<uint64_t, Running> running_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_
