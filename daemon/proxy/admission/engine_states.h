#ifndef DAEMON_PROXY_ADMISSION_ENGINE_STATES_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_STATES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/admission/engine_errors.h"

namespace fineserve::proxy {

// The engines of one GPU, as the proxy sees them: by their /health, by the
// signs of life of their requests, and by fsctl up's word that some are about
// to end.
//
// Invariant: an engine has `silent_ns`, the time since when it does not serve,
// exactly while its last /health says so. Confined to the proxy's thread.
class EngineStates {
 public:
  // An engine's last answer to /health.
  enum class Health {
    kDoesNot,  // also if the question itself failed
    kServes,
    kUnreachable,  // no machine or port there takes or refuses a connection
    kUnknownHost,  // the name of its machine does not resolve
  };

  // `clock` outlives it.
  EngineStates(std::shared_ptr<const config::Fleet> fleet, const Clock* clock)
      : fleet_(std::move(fleet)), clock_(clock) {}

  void SetFleet(std::shared_ptr<const config::Fleet> fleet);
  // Sets the errors of all engines of the fleet, which must outlive this
  // object. Without this call, or with null, no errors are considered.
  void SetErrors(const EngineErrors* errors) { errors_ = errors; }

  // `asked_ns` is the time of the question. An engine that stopped serving did
  // so at `asked_ns` or, if it owes earlier answers, at the first unanswered
  // question.
  void SetHealth(const std::string& engine, Health health, uint64_t asked_ns);
  // Sets the time since when the engine owes answers to /health; 0 if it owes
  // none.
  void SetUnanswered(const std::string& engine, uint64_t since_ns) {
    states_[engine].signs.unanswered_ns = since_ns;
  }
  // Sets, in one line, the trouble of an engine that serves, or the reason why
  // an engine does not serve; empty: none. The line is logged, and sent to the
  // daemon for fsctl. The trouble began at `since_ns`; 0: now.
  void SetTrouble(const std::string& engine, const std::string& trouble,
                  uint64_t since_ns = 0);
  // As Admission's.
  void Rest(const std::vector<std::string>& engines,
            const std::vector<std::string>& stopped, uint64_t until_ns);
  // Notes that the engine, or a request that runs there, has shown a sign of
  // life.
  void Progressed(const std::string& engine) { Progressed(SignsOf(engine)); }
  void Progressed(EngineSigns* signs) const {
    signs->progressed_ns = clock_->NowNs();
  }
  // The result is valid while this object lives.
  EngineSigns* SignsOf(const std::string& engine) {
    return &states_[engine].signs;
  }

  EngineSigns Signs(const std::string& engine) const;
  bool Serves(const std::string& engine) const;
  // True if the engine would serve, apart from its errors.
  bool IsHealthy(const std::string& engine) const;
  // True if the engine may get a request without a daemon. An engine that does
  // not serve may get one, since it may just have begun to serve. An engine
  // that cannot be reached may not, since the client would wait until the
  // connection attempt is given up; nor may one that is about to end.
  bool MayTake(const std::string& engine) const;
  bool IsStoppedByHand(const std::string& engine) const;

  // Adds the engine to a greeting.
  void Tell(const std::string& engine, wire::HelloT* hello) const;

 private:
  // Times are CLOCK_MONOTONIC.
  struct Trouble {
    std::string what;
    uint64_t since_ns = 0;
  };
  struct State {
    absl::optional<Health> health;       // none: it was never asked
    absl::optional<uint64_t> silent_ns;  // since then it does not serve
    EngineSigns signs;
    Trouble trouble;
    uint64_t rests_until_ns = 0;
    bool rests_by_hand = false;  // an operator stopped it
  };

  const State& Of(const std::string& engine) const;
  bool Rests(const State& state) const {
    return state.rests_until_ns > clock_->NowNs();
  }
  Trouble TroubleOf(const std::string& engine) const;
  double SecondsSince(uint64_t ns) const {
    return static_cast<double>(clock_->NowNs() - ns) * 1e-9;
  }

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  const EngineErrors* errors_ = nullptr;
  std::map<std::string, State> states_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_STATES_H_
