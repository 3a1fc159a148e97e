#ifndef DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "daemon/clock/clock.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// Admits everything at once, on the model's engine with the fewest outstanding
// tokens: what the proxy does without a scheduler (fail_open), and the baseline
// for one. Outstanding are the prompt until the first token and the expected
// output until the end. An engine that failed a request is left alone for
// kRestNs, unless no other is there.
class OpenAdmission final : public Admission {
 public:
  // Heuristic: long enough not to waste each request's first attempt, short
  // enough that a restarted engine is found soon.
  static constexpr uint64_t kRestNs = 1'000'000'000;
  // Expected output of a request that names no max_tokens. Heuristic: the mean
  // answer in ShareGPT is about 200 tokens.
  static constexpr uint32_t kUnsaidTokens = 256;

  // `clock` outlives this.
  OpenAdmission(std::shared_ptr<const config::Fleet> fleet, const Clock* clock);

  // What Submit would decide.
  Verdict Choose(const AdmissionRequest& request) const;
  // Somebody decided so: it counts until Finished.
  void Enter(const AdmissionRequest& request, const std::string& engine);

  void Submit(const AdmissionRequest& request,
              std::function<void(Verdict)> on_verdict) override;
  void Cancel(uint64_t id) override {}  // nothing waits
  void FirstToken(uint64_t id) override;
  void Progress(uint64_t, uint32_t) override {}  // its expectation stands
  void Finished(uint64_t id, uint32_t prompt_tokens, uint32_t output_tokens,
                Outcome outcome) override;
  void SetFleet(std::shared_ptr<const config::Fleet> fleet) override;
  bool Serves(const std::string& engine) const override { return true; }
  bool Ready() const override { return true; }

  // Tokens outstanding on the engine of this name.
  uint64_t outstanding(const std::string& engine) const;

 private:
  struct Engine {
    uint64_t tokens = 0;
    uint64_t rest_until_ns = 0;
  };
  struct Running {
    std::string engine;
    uint64_t prompt_tokens = 0;
    uint64_t output_tokens = 0;
  };
  // Less is better: rested, not avoided, fewest tokens.
  using Rank = std::tuple<bool, bool, uint64_t>;

  Rank RankOf(const std::string& engine, const AdmissionRequest& request) const;
  const config::FleetEngine* LeastLoaded(const AdmissionRequest& request) const;

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  absl::flat_hash_map<std::string, Engine> engines_;
  absl::flat_hash_map<uint64_t, Running> running_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_OPEN_ADMISSION_H_
