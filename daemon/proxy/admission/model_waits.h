#ifndef DAEMON_PROXY_ADMISSION_MODEL_WAITS_H_
#define DAEMON_PROXY_ADMISSION_MODEL_WAITS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::proxy {

// Predicts how long a new prompt of each model would wait for its turn on one
// GPU, from the daemon's last report and the requests sent since. Confined to
// the proxy's thread.
class ModelWaits {
 public:
  // `clock` outlives it.
  ModelWaits(std::shared_ptr<const config::Fleet> fleet, const Clock* clock)
      : fleet_(std::move(fleet)), clock_(clock) {}
  void SetFleet(std::shared_ptr<const config::Fleet> fleet) {
    fleet_ = std::move(fleet);
  }

  // Replaces all that was known.
  void Note(const wire::WelcomeT& welcome);
  // Notes that a request of the model cannot start within `start_us`.
  void NoteFull(const std::string& model, uint64_t start_us);
  void Sent(const std::string& model, uint32_t prompt_tokens);
  // Notes that a request has ended, which may have made room for any model.
  void Ended();

  // In µs; 0 if unknown.
  double PredictedUs(const std::string& model) const;
  // Returns the time that an engine of the model takes for `tokens` of a
  // prompt, in whole milliseconds; negative for a negative number.
  double PrefillUs(const std::string& model, double tokens) const;
  // True if, by the daemon's last report, no request for the model could start,
  // and no request has ended since.
  bool IsFull(const std::string& model) const;
  // True if the model's memory would have to come back to the GPU first, and no
  // request for it has been sent since the daemon said so.
  bool IsAway(const std::string& model) const;

 private:
  // Null if the model has none.
  const config::StepProfile* ProfileOf(const std::string& model) const;

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  std::map<std::string, PredictedWait> waits_;  // by model
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_MODEL_WAITS_H_
