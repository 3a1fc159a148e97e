// The part of an Exchange that finds another model for a request that its own
// cannot serve, and that asks endpoints outside the fleet.

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/proxy/relay/exchange.h"
#include "daemon/proxy/request/request_facts.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kApi = "/v1";

// True if the path is part of OpenAI's API, the only one that endpoints outside
// speak.
bool IsOpenAis(absl::string_view target) {
  return absl::StartsWith(target, "/v1/") && !IsAnthropic(target);
}

// True for a mistake of the client. Other errors are about our account there.
bool IsClients(unsigned status) {
  return status == 400 || status == 413 || status == 422;
}

ApiError OutsideError(const std::string& model, const ResponseParser& answer) {
  const std::string message = absl::StrCat(
      "the endpoint of ", model, " answers with status ", answer.status());
  if (answer.status() != 429) return ServerError(502, "outside_error", message);
  ApiError error = RateLimitError("outside_rate_limit", message);
  uint32_t seconds = 0;
  if (absl::SimpleAtoi(answer.Field("retry-after"), &seconds)) {
    error.retry_after_ms = std::min(seconds, 86'400u) * 1000;
  }
  return error;
}

}  // namespace

// True if the model has a fallback that the client may ask for, and the request
// can still go there.
bool Exchange::MayFallBack() const {
  const Routes& routes = *service_->routes;
  const config::FleetModel* const model = routes.Model(model_);
  if (client_gone_ || head_sent_ || is_outside_ || model == nullptr ||
      route_ != Route::kAdmitted || facts_.model_bytes == 0 ||
      model->fallback.empty()) {
    return false;
  }
  const std::shared_ptr<const Client> client = routes.ClientOf(*request_);
  if (client == nullptr || !client->MayAskFor(model->fallback)) return false;
  return routes.fleet()->Outside(model->fallback) == nullptr ||
         IsOpenAis(request_->target());
}

// Gives the request to the model's fallback, which the client must be allowed
// to ask for. True if the fallback takes it. `refusal` is the client's answer
// if the fallback fails, too.
bool Exchange::FallBack(const ApiError& refusal) {
  if (refusal.status == 400 || !MayFallBack()) return false;
  const Routes& routes = *service_->routes;
  const std::string fallback = routes.Model(model_)->fallback;
  const config::OutsideModel* const outside = routes.fleet()->Outside(fallback);
  if (!refused_) {
    refused_ = refusal;
    life_->fell_back_from = model_;
  }
  service_->metrics.CountFallback(model_, fallback);
  if (outside != nullptr) {
    GoOutside(*outside);
    return true;
  }
  RenameModel(fallback, IsForm(request_->Field("content-type")), &facts_,
              request_->body());
  model_ = life_->model = asked_.model = fallback;
  SetSlos(*routes.Model(fallback));
  asked_.avoid_engine.clear();
  attempts_ = 0;
  return true;
}

void Exchange::GoOutside(const config::OutsideModel& outside) {
  RenameModel(outside.model, IsForm(request_->Field("content-type")), &facts_,
              request_->body());
  model_ = life_->model = engine_name_ = outside.name;
  is_outside_ = true;
  slo_ttft_us_ = slo_tpot_us_ = 0;
  attempts_ = 0;
}

// Reads a request that names a model outside.
absl::optional<ApiError> Exchange::ReadForOutside(
    const config::OutsideModel& outside) {
  if (route_ != Route::kAdmitted || !IsOpenAis(request_->target())) {
    return ClientError(404, "not_found",
                       absl::StrCat(outside.name,
                                    " is outside this fleet and takes "
                                    "completions, chats and responses alone"));
  }
  asked_.prompt_tokens = service_->estimator.Estimate(facts_);
  asked_.arrived_ns = started_ns_;
  life_->stream = facts_.stream;
  GoOutside(outside);
  return ReadTerms();
}

// True if the request is to be tried once more.
asio::awaitable<bool> Exchange::AttemptOutside() {
  const std::shared_ptr<const Routes> routes = service_->routes;
  const config::OutsideModel* const outside = routes->fleet()->Outside(model_);
  LifeAttempt& attempt = NoteAttempt();
  attempt.engine = model_;
  attempt.sent_ns = service_->clock->NowNs();
  BeginAttempt();
  Ended ended = Ended::kNotAnswered;
  // `outside` is null if a reload has removed the model.
  if (outside != nullptr) ended = co_await ForwardOutside(*outside);
  if (client_gone_) ended = Ended::kClientGone;
  co_return co_await Conclude(ended);
}

asio::awaitable<Exchange::Ended> Exchange::ForwardOutside(
    const config::OutsideModel& outside) {
  Server server = {outside.host, outside.port, outside.tls};
  // A query may hold secrets.
  const absl::string_view path =
      request_->target().substr(0, request_->target().find('?'));
  const absl::string_view rest = absl::StripPrefix(path, kApi);
  const std::string authority = server.Authority(),
                    target = absl::StrCat(outside.path, rest);
  Forwarding how;
  how.authority = authority;
  how.target = target;
  how.body_bytes = request_->body()->size();
  how.via = service_->via;
  std::string head =
      OutsideHead(*request_, how, service_->routes->KeyOutside(outside.name));
  return Carry(std::move(server), std::move(head));
}

// True if the client gets refused_ instead of the answer whose head has come.
bool Exchange::FailsOutside() {
  const unsigned status = talk_.answer()->status();
  const bool fails = status >= 400 && (refused_ || !IsClients(status));
  if (!fails) return false;
  if (!refused_) refused_ = OutsideError(model_, *talk_.answer());
  talk_.SetError(EngineError::kStatus);
  return true;
}

}  // namespace fineserve::proxy
