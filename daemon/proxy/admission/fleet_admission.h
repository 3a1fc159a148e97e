#ifndef DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "daemon/clock/clock.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/admission/daemon_admission.h"

namespace fineserve::proxy {

// Admission over all GPUs of a fleet: each has a daemon, which decides about
// its engines (DaemonAdmission). Here a request finds its GPU, where several
// have engines of its model: of those whose daemon decides and whose engines
// answer
//
//   with target rates    the one that is furthest behind its rate
//   without              the one of the least predicted TTFT, or load
//
// and the next in that order when one refuses it. A daemon chooses among its
// own engines by predicted TTFT. Confined to the proxy's thread.
class FleetAdmission final : public Admission {
 public:
  using OnGpu =
      std::function<void(const std::string& gpu, DaemonAdmission* admission)>;

  // `clock` outlives it.
  FleetAdmission(std::shared_ptr<const config::Fleet> fleet,
                 const Clock* clock);

  // Tells of each GPU, as the fleet writes it, once: now of those there are,
  // and later of those that a fleet which is read again names. What is told of
  // lives as long as this object.
  void ForEachGpu(OnGpu on_gpu);

  void Submit(const AdmissionRequest& request,
              std::function<void(Verdict)> on_verdict) override;
  void Cancel(uint64_t id) override;
  void FirstToken(uint64_t id) override;
  void Progress(uint64_t id, uint32_t output_tokens) override;
  void Finished(uint64_t id, uint32_t prompt_tokens, uint32_t output_tokens,
                Outcome outcome) override;
  void SetFleet(std::shared_ptr<const config::Fleet> fleet) override;
  bool Serves(const std::string& engine) const override;
  bool Ready() const override;

 private:
  struct Part {
    std::unique_ptr<DaemonAdmission> admission;
    // By model: requests due to it by its target rate and not given to it.
    std::map<std::string, double> due;
  };
  // A GPU that a request may go to; the less of trouble, then of cost, the
  // better.
  struct Candidate {
    Part* part;
    int trouble;
    double cost;
    double target_rate;
  };
  using OnVerdict = std::function<void(Verdict)>;

  // nullopt if it has no engine of the request's model.
  absl::optional<Candidate> Consider(Part* part,
                                     const AdmissionRequest& request) const;
  // Best first; the first has taken its turn.
  std::vector<Candidate> InOrder(const AdmissionRequest& request);
  // Asks the first, and when it refuses the rest.
  void Try(const AdmissionRequest& request, std::vector<Candidate> candidates,
           OnVerdict on_verdict);
  DaemonAdmission* Of(uint64_t id) const;

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  OnGpu on_gpu_ = [](const std::string&, DaemonAdmission*) {};
  std::map<std::string, Part> parts_;  // by gpu, as the fleet writes it
  absl::flat_hash_map<uint64_t, DaemonAdmission*> asked_;  // by request
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_
