#ifndef DAEMON_PROXY_ADMISSION_STOPPED_MODELS_H_
#define DAEMON_PROXY_ADMISSION_STOPPED_MODELS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock/clock.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// Holds the requests for models whose engines fsctl up starts on request
// (fineserve-fleet(5)), while no engine of the model serves. Twice a second
// fsctl up asks which engines requests wait for, and reports how far their
// starts are. A request waits until an engine of its model serves: only then
// does the model's TTFT SLO begin. An SLO that the request itself sets counts
// from its arrival, so the request is refused as soon as the start takes
// longer, and the engine is started for the next one. An engine that an
// operator stopped is not started on request. Confined to the proxy's thread.
class StoppedModels {
 public:
  // A callback may add another request.
  using OnVerdict = std::function<void(Verdict)>;
  using OfEngine = std::function<bool(const std::string& engine)>;

  // If fsctl up sends no message for this long, its engines do not count as
  // being started. It checks all its engines between two messages.
  static constexpr uint64_t kUpPatienceNs = 10'000'000'000;

  // `clock` outlives it.
  StoppedModels(const Clock* clock, OfEngine serves, OfEngine stopped_by_hand)
      : clock_(clock),
        serves_(std::move(serves)),
        stopped_by_hand_(std::move(stopped_by_hand)) {}

  void SetFleet(std::shared_ptr<const config::Fleet> fleet);
  // True if the fleet has engines that are started on request, or if a request
  // waits for an engine that the fleet has lost.
  bool any() const { return !engines_.empty() || !waiting_.empty(); }

  // Notes that a request of the model came.
  void Asked(const std::string& model);
  // True if an engine of the model is started on request now, and none serves.
  bool IsStopped(const std::string& model) const;
  // Takes a request of a stopped model, or refuses it.
  void Add(const AdmissionRequest& request, OnVerdict on_verdict);
  void Cancel(uint64_t id) { waiting_.erase(id); }

  // Returns the requests whose models serve now, ready to be decided, and
  // refuses those that no start will help. `running` is the number of running
  // requests by engine.
  struct Ready {
    AdmissionRequest request;
    OnVerdict on_verdict;
  };
  std::vector<Ready> Turn(const std::map<std::string, uint64_t>& running);

  void HearStarts(const std::map<std::string, double>& starts);
  // By engine.
  std::map<std::string, EngineDemand> Demand() const;

 private:
  struct Waiting {
    AdmissionRequest request;
    OnVerdict on_verdict;
    uint64_t since_ns;
  };
  // How far a start of the model is.
  struct Outlook {
    bool known = false;
    bool fails = false;
    double seconds = 0;  // that it takes; of one that fails, until the next
    std::string engine;
  };

  Outlook OutlookFor(const std::string& model) const;
  // If no start can help the request, sets a verdict that refuses it. Returns
  // false if it still waits.
  bool RefuseIfHopeless(const Waiting& waiting, Verdict* verdict);
  // Makes an engine of the model wanted, so that it is started although the
  // request is refused.
  void Want(const std::string& model, const Outlook& outlook);
  void ForgetWanted();
  Ready Decidable(Waiting waiting) const;

  const Clock* const clock_;
  const OfEngine serves_;
  const OfEngine stopped_by_hand_;
  std::shared_ptr<const config::Fleet> fleet_;
  // The engines that are started on request: engine and model.
  std::map<std::string, std::string> engines_;
  std::map<uint64_t, Waiting> waiting_;  // by id: in order of arrival
  // When a request last came or waited, by model; and when a request last ran,
  // by engine.
  std::map<std::string, uint64_t> asked_ns_;
  std::map<std::string, uint64_t> ran_ns_;
  // By model: an engine is started after a refused request until this time,
  // unless one serves or its starts fail before.
  std::map<std::string, uint64_t> wanted_until_ns_;
  std::map<std::string, double> starts_;  // by engine
  uint64_t heard_ns_ = 0;                 // when fsctl up last asked
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_STOPPED_MODELS_H_
