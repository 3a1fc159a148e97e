// Fuzzes the scheduler with any bytes as a peer's serving messages: its books
// stay right, and a well-behaved proxy beside the fuzzer still gets its
// verdict.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fineserved/admission/admission_service.h"
#include "tests/fuzz/target.h"

namespace fineserve::fuzz {
namespace {

constexpr uint64_t kEpoch = 1;

void Require(bool holds) {
  if (!holds) abort();
}

config::Fleet OneModel() {
  config::Fleet fleet;
  config::FleetModel model;
  model.name = "m";
  model.slo_ttft_ms = 500;
  model.kv_token_bytes = 256;
  model.profile = {1000, 10, 10};
  fleet.models = {model};
  config::FleetEngine engine;
  engine.name = "e";
  engine.model = "m";
  fleet.engines = {engine};
  return fleet;
}

wire::HelloT Hello() {
  wire::HelloT hello;
  auto engine = std::make_unique<wire::EngineHealthT>();
  engine->name = "e";
  engine->serves = true;
  hello.engines.push_back(std::move(engine));
  return hello;
}

wire::SubmitT Submit() {
  wire::SubmitT submit;
  submit.model = "m";
  submit.prompt_tokens = 10;
  submit.max_tokens = 10;
  return submit;
}

// Each input gets a new daemon.
class Daemon {
 public:
  Daemon() {
    fineserve::log::SetLevel("off");
    clock_.AdvanceNs(1'000'000'000);
  }

  // Sends `bytes` as peer "bad", in messages cut as the input specifies.
  void Feed(const uint8_t* bytes, size_t count) {
    while (count > 0) {
      const size_t n = std::min<size_t>(count, 8 + bytes[0] * 4u);
      service_->Handle("bad", absl::string_view(std::string(bytes, bytes + n)));
      service_->Settle();
      clock_.AdvanceNs(bytes[0] * 10'000'000ull);
      bytes += n;
      count -= n;
    }
  }

  // Checks that the good proxy's request gets one verdict and, with no other
  // request left, is admitted.
  void CheckGoodProxy() {
    service_->Handle("good", wire::Encode(0, 0, Hello()));
    clock_.AdvanceNs(admission::AdmissionService::kPeerPatienceNs - 1);
    Say(Hello(), 0);
    clock_.AdvanceNs(1'000'000);  // the proxies before us are forgotten now
    service_->Settle();
    Undrain();
    if (!plans_.newest().LetsIn("e")) return CheckRefusal();
    Say(Submit(), 1);
    Require(verdicts_ == 1 && admitted_ == 1);
  }

 private:
  // A plan may keep requests out: then none is admitted.
  void CheckRefusal() {
    Say(Submit(), 1);
    Require(admitted_ == 0);
  }
  template <typename Body>
  void Say(Body body, uint64_t request) {
    service_->Handle("good", wire::Encode(kEpoch, request, std::move(body)));
    service_->Settle();
  }
  void Undrain() {
    wire::DrainT drain;
    drain.on = false;
    Say(std::move(drain), 0);
  }
  bool Hear(const std::string& peer, absl::string_view bytes) {
    const auto message = wire::Decode(bytes);
    Require(message.ok());
    if (peer != "good") return true;
    if (const wire::VerdictT* verdict = message->body.AsVerdict()) {
      ++verdicts_;
      admitted_ += verdict->admitted;
    }
    return true;
  }

  // Reports that the engines' KV is not in the pool.
  static std::vector<admission::EngineKv> NoKv(
      const std::vector<admission::EngineNeed>& needs) {
    return std::vector<admission::EngineKv>(needs.size());
  }

  ManualClock clock_;
  admission::DrainedEngines drained_{""};
  admission::PlanBoard plans_;
  int verdicts_ = 0;
  int admitted_ = 0;
  std::unique_ptr<admission::AdmissionService> service_ =
      *admission::AdmissionService::Create(
          OneModel(), "GPU-1", kEpoch,
          {NoKv, [] { return admission::GpuFacts(); }, &clock_, &drained_,
           &plans_},
          [this](const std::string& peer, absl::string_view bytes) {
            return Hear(peer, bytes);
          });
};

std::unique_ptr<wire::StreamProgressT> Stream(uint64_t request,
                                              uint32_t output_tokens) {
  auto stream = std::make_unique<wire::StreamProgressT>();
  stream->request = request;
  stream->output_tokens = output_tokens;
  return stream;
}

template <typename Body>
std::vector<uint8_t> Bytes(Body body, uint64_t request) {
  const std::string bytes = wire::Encode(kEpoch, request, std::move(body));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<std::vector<uint8_t>> Seeds() {
  wire::HelloT hello = Hello();
  auto running = std::make_unique<wire::RunningRequestT>();
  running->request = 3;
  running->engine = "e";
  running->model = "m";
  running->prompt_tokens = 7;
  running->output_tokens = 9;
  hello.running.push_back(std::move(running));
  wire::ProgressT progress;
  progress.streams.push_back(Stream(1, 5));
  progress.streams.push_back(Stream(3, 1u << 31));
  hello.demand.push_back(std::make_unique<wire::ModelDemandT>());
  hello.demand[0]->model = "m";
  hello.demand[0]->arrived = 1;
  wire::PlanNoticeT notice;
  notice.plan = std::make_unique<wire::PlanT>();
  notice.plan->number = 1;
  notice.plan->places.push_back(std::make_unique<wire::PlannedPlaceT>());
  notice.plan->places[0]->engine = "e";
  notice.plan->places[0]->state = wire::PlaceState::kServe;
  wire::DrainT drain;
  drain.engine = "e";
  drain.on = true;
  return {Bytes(std::move(hello), 0),       Bytes(Submit(), 1),
          Bytes(wire::CancelT(), 1),        Bytes(wire::FirstTokenT(), 1),
          Bytes(wire::FinishedT(), 1),      Bytes(wire::ModelsQueryT(), 0),
          Bytes(wire::RequestsQueryT(), 0), Bytes(std::move(drain), 0),
          Bytes(wire::VerdictT(), 1),       Bytes(std::move(progress), 0),
          Bytes(std::move(notice), 0),      Bytes(wire::PlanQueryT(), 0),
          Bytes(wire::SteerT(), 0)};
}

}  // namespace fineserve::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  fineserve::fuzz::Daemon daemon;
  daemon.Feed(bytes, count);
  daemon.CheckGoodProxy();
  return 0;
}
