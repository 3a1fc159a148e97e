#ifndef DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_FIXTURE_H_
#define DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "daemon/proxy/admission/fleet_admission.h"

namespace fineserve::proxy {

inline constexpr uint64_t kEpoch = 5;
inline constexpr double kPerTokenUs = 100;

inline config::FleetEngine Engine(const std::string& name,
                                  const std::string& gpu,
                                  double target_rate = 0) {
  config::FleetEngine engine;
  engine.name = name;
  engine.model = "m";
  engine.gpu = gpu;
  engine.target_rate = target_rate;
  return engine;
}

inline config::Fleet FleetOf(std::vector<config::FleetEngine> engines) {
  config::Fleet fleet;
  fleet.models.resize(1);
  fleet.models[0].name = "m";
  fleet.models[0].profile = config::StepProfile{.per_token_us = kPerTokenUs};
  fleet.engines = std::move(engines);
  fleet.planner.on = true;
  return fleet;
}

// Two GPUs, with this test as the daemon of each.
class FleetAdmissionTest : public ::testing::Test {
 protected:
  FleetAdmissionTest() { clock_.AdvanceNs(1'000'000'000); }

  void Use(config::Fleet fleet) {
    admission_ = std::make_unique<FleetAdmission>(Share(fleet), &clock_);
    admission_->ForEachGpu([this](const std::string& gpu, GpuAdmission* its) {
      gpus_[gpu] = its;
      its->SetSend([this, gpu](absl::string_view bytes) {
        const wire::MessageT message = *wire::Decode(bytes);
        if (message.body.AsSubmit() != nullptr) asked_.push_back(gpu);
        if (message.body.AsHello() == nullptr) {
          told_[gpu].push_back(message);
        } else {
          hellos_[gpu] = *message.body.AsHello();
        }
        return true;
      });
    });
  }
  void UseTwo(double rate_a = 0, double rate_b = 0) {
    Use(FleetOf({Engine("a", "A", rate_a), Engine("b", "B", rate_b)}));
    Welcome("A");
    Welcome("B");
  }
  static std::shared_ptr<const config::Fleet> Share(config::Fleet fleet) {
    return std::make_shared<const config::Fleet>(std::move(fleet));
  }

  template <typename Body>
  void Receive(const std::string& gpu, uint64_t request, Body body) {
    gpus_.at(gpu)->Receive(wire::Encode(kEpoch, request, std::move(body)));
  }
  void Welcome(const std::string& gpu, uint64_t wait_us = 0,
               const wire::PlanT* plan = nullptr, bool away = false) {
    wire::WelcomeT welcome;
    if (plan != nullptr) welcome.plan = std::make_unique<wire::PlanT>(*plan);
    welcome.waits.push_back(std::make_unique<wire::ModelWaitT>());
    welcome.waits[0]->model = "m";
    welcome.waits[0]->wait_us = wait_us;
    welcome.waits[0]->away = away;
    Receive(gpu, 0, std::move(welcome));
  }
  void Decide(const std::string& gpu, uint64_t request,
              wire::Refusal refusal = wire::Refusal::kNone) {
    wire::VerdictT verdict;
    verdict.admitted = refusal == wire::Refusal::kNone;
    verdict.engine = verdict.admitted ? gpu == "A" ? "a" : "b" : "";
    verdict.refusal = refusal;
    verdict.why = "because of " + gpu;
    Receive(gpu, request, std::move(verdict));
  }
  // Reports, as the GPU's daemon, that the request cannot start there now.
  void LetWait(const std::string& gpu, uint64_t request) {
    wire::WaitsT waits;
    waits.start_us = 2'000'000;
    Receive(gpu, request, waits);
  }
  // Returns the last message to a GPU if it is a Cancel, else null.
  const wire::CancelT* LastCancel(const std::string& gpu) {
    return told_[gpu].back().body.AsCancel();
  }
  AdmissionRequest Request(uint32_t prompt_tokens = 10) {
    AdmissionRequest request;
    request.id = ++last_;
    request.model = "m";
    request.prompt_tokens = prompt_tokens;
    request.arrived_ns = clock_.NowNs();
    return request;
  }
  void Submit(const AdmissionRequest& request) {
    admission_->Submit(request, [this, id = request.id](Verdict v) {
      verdicts_.emplace_back(id, std::move(v));
    });
  }
  // Sends `count` requests and returns how many each GPU is asked about.
  std::map<std::string, int> Split(int count) {
    asked_.clear();
    for (int i = 0; i < count; ++i) Submit(Request());
    std::map<std::string, int> split;
    for (const std::string& gpu : asked_) ++split[gpu];
    return split;
  }

  ManualClock clock_;
  std::unique_ptr<FleetAdmission> admission_;
  std::map<std::string, GpuAdmission*> gpus_;
  std::map<std::string, std::vector<wire::MessageT>> told_;
  std::map<std::string, wire::HelloT> hellos_;  // last, by GPU
  std::vector<std::string> asked_;              // GPUs, by request
  std::vector<std::pair<uint64_t, Verdict>> verdicts_;
  uint64_t last_ = 0;
};

using Counts = std::map<std::string, int>;

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_FLEET_ADMISSION_FIXTURE_H_
