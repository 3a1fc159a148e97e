#ifndef DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/admission/demand_book.h"
#include "daemon/proxy/admission/engine_errors.h"
#include "daemon/proxy/admission/gpu_admission.h"
#include "daemon/proxy/admission/stopped_models.h"
#include "daemon/proxy/replica_choice/replica_order.h"
#include "daemon/proxy/replica_choice/tied_request.h"

namespace fineserve::proxy {

// Admission over all GPUs of a fleet. Each GPU has a daemon that decides for
// its engines (GpuAdmission). If several GPUs have engines of a request's
// model, this class chooses the GPU, of those whose daemon decides and whose
// engines serve:
//
//   with target rates    the one that is furthest behind its rate
//   without              the one with the least predicted TTFT, or load
//
// and asks the next in that order if one cannot start the request now or
// refuses it: it waits at all of them and goes where it can start first
// (TiedRequest). A daemon chooses among its own engines by predicted TTFT.
//
// For engines that the plan names, its target rates replace the fleet's; a GPU
// where the plan lets no engine of the model serve is asked after all others.
// The plan with the highest number applies, whichever daemon sent it. A request
// that no daemon has admitted waits here (StoppedModels) while engines of its
// model are started on request and none serves, wherever it waited before.
// Confined to the proxy's thread.
class FleetAdmission final : public Admission {
 public:
  using OnGpu =
      std::function<void(const std::string& gpu, GpuAdmission* admission)>;

  // `clock` outlives it.
  FleetAdmission(std::shared_ptr<const config::Fleet> fleet,
                 const Clock* clock);

  // Calls `on_gpu` once for each GPU, with the fleet's name for it: now for
  // those of the present fleet, later for those that a reloaded fleet adds.
  // Each GpuAdmission lives as long as this object.
  void ForEachGpu(OnGpu on_gpu);

  void Submit(const AdmissionRequest& request,
              std::function<void(Verdict)> on_verdict) override;
  void Cancel(uint64_t id) override;
  void FirstToken(uint64_t id) override;
  void Progress(uint64_t id, uint32_t output_tokens) override;
  void Finished(uint64_t id, uint32_t prompt_tokens, uint32_t output_tokens,
                Outcome outcome) override;
  void Sent(const std::string& engine) override;
  void Answered(const std::string& engine) override;
  void Failed(const std::string& engine, EngineError error) override;
  void Suspect(const std::string& engine) override;
  EngineSigns Signs(const std::string& engine) const override;
  void SetFleet(std::shared_ptr<const config::Fleet> fleet) override;
  bool Serves(const std::string& engine) const override;
  bool LetsIn(const std::string& engine) const override {
    return plan_.LetsIn(engine);
  }
  bool Ready() const override;
  std::map<std::string, bool> Daemons() const override;
  std::map<std::string, double> AwayS() const override;
  const wire::NewestPlan* Plan() const override { return &plan_; }
  uint64_t Unscheduled() const override;
  void Rest(const std::vector<std::string>& engines,
            const std::vector<std::string>& stopped,
            uint64_t until_ns) override;
  bool IsStoppedByHand(const std::string& engine) const override;
  bool IsEvicted(const std::string& model,
                 const std::string& gpu) const override;
  absl::optional<PeerReading> ReadingOf(
      const std::string& engine) const override;
  void HearStarts(const std::map<std::string, double>& starts) override {
    stopped_.HearStarts(starts);
  }
  std::map<std::string, EngineDemand> DemandOnRequest() const override {
    return stopped_.Demand();
  }
  bool AwaitsStart(const std::string& model) const override {
    return stopped_.IsStopped(model);
  }
  void Forwards(uint64_t id, const std::string& engine) override;
  void Tick() override;
  std::map<std::string, uint64_t> RunningByEngine() const override;

 private:
  struct Part {
    std::unique_ptr<GpuAdmission> admission;
    // By model: the requests that the GPU's target rate entitles it to and that
    // it has not been given.
    std::map<std::string, double> due;
    PrefixIndex prefixes;
    std::map<std::string, RecentPrefill> prefilled;  // by model
  };
  using OnVerdict = std::function<void(Verdict)>;
  // A request without a verdict. Places in `parts` are the machine's.
  struct Deciding {
    AdmissionRequest request;
    std::vector<Part*> parts;
    TiedRequest tied;
    Verdict refusal;  // the most telling one so far
    OnVerdict on_verdict;
  };

  // Makes the request wait for the start of an engine of its model.
  void AwaitStart(const AdmissionRequest& request, OnVerdict on_verdict);
  // Withdraws from the daemons the requests of models that have stopped.
  void TakeStranded();
  // Asks the GPUs for a verdict, unless the request needs no decision.
  void Decide(const AdmissionRequest& request, OnVerdict on_verdict);
  // nullopt if the GPU has no engine of the request's model.
  absl::optional<Candidate> Consider(Part* part,
                                     const AdmissionRequest& request) const;
  Deciding Order(const AdmissionRequest& request, OnVerdict on_verdict);
  // Asks the next place; refuses the request once all places have refused it.
  void GoOn(uint64_t id);
  void Ask(const Deciding& deciding, size_t place);
  void Heard(uint64_t id, size_t place, Verdict verdict);
  void Remember(const AdmissionRequest& request, Part* part) const;
  void Admit(uint64_t id, size_t place, Verdict verdict);
  // True if the request goes on without the GPU at `place`, which has lost its
  // daemon.
  bool Lost(uint64_t id, size_t place);
  GpuAdmission* Of(uint64_t id) const;
  // Returns the admission of the engine's GPU; null if the fleet has no such
  // engine.
  GpuAdmission* Of(const std::string& engine) const;
  void TellServing();

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  wire::NewestPlan plan_;
  DemandBook demand_;
  EngineErrors errors_;
  StoppedModels stopped_;
  OnGpu on_gpu_ = [](const std::string&, GpuAdmission*) {};
  std::map<std::string, Part> parts_;  // by gpu, as the fleet writes it
  std::unordered_map<uint64_t, Deciding> deciding_;       // by request
  std::unordered_map<uint64_t, GpuAdmission*> admitted_;  // by request
  std::unordered_map<uint64_t, std::string> forwarded_;   // by request: engine
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_H_
