// The part of an Exchange that finds the engine which has a stored response.

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/proxy/relay/exchange.h"

namespace fineserve::proxy {
namespace {

// True if the engine does not know the id, or perhaps not even the path.
bool IsElsewhere(unsigned status) {
  return status == 404 || status == 405 || status == 501;
}

// The engine has not looked.
bool IsSilent(unsigned status) {
  return status == 401 || status == 403 || status == 429 || status >= 500;
}

ApiError NotFound(absl::string_view id) {
  return ClientError(404, "response_not_found",
                     absl::StrCat("no engine has the response ", id));
}

ApiError MayBeAt(const std::vector<std::string>& engines,
                 absl::string_view id) {
  ApiError error = ServerError(
      503, "no_engine",
      absl::StrCat("no engine that answers has the response ", id,
                   "; these did not answer: ", absl::StrJoin(engines, ", ")));
  error.retry_after_ms = 1000;
  return error;
}

}  // namespace

asio::awaitable<bool> Exchange::RunLookup() {
  client_->Watch([this] { ClientGone(); });
  const std::shared_ptr<const Routes> routes = service_->routes;
  const std::string id(ResponseIdOf(request_->target()));
  std::vector<std::string> silent;
  const auto engines = routes->EnginesToAsk(
      service_->homes.EngineOf(id), [this](const std::string& name) {
        return service_->admission->Serves(name);
      });
  const std::shared_ptr<const Client> asks = routes->ClientOf(*request_);
  if (asks != nullptr) life_->key = asks->name;
  for (const config::FleetEngine* engine : engines) {
    // A client cannot see a response of a model that it may not ask for.
    if (asks == nullptr || !asks->MayAskFor(engine->model)) continue;
    const Holding holding = co_await AskForResponse(*engine);
    if (client_gone_) break;
    if (holding == Holding::kUnknown) silent.push_back(engine->name);
    if (holding != Holding::kHas) continue;
    service_->homes.Found(id, engine->name);
    co_await RelayResponse(*engine);
    co_return ClientStays();
  }
  if (client_gone_) {
    CountClientGone();
    co_return false;
  }
  const std::string shown = absl::CHexEscape(id.substr(0, 100));
  co_await Fail(silent.empty() ? NotFound(shown) : MayBeAt(silent, shown));
  co_return ClientStays();
}

// Asks the engine whether it has the response. kHas: the head of its answer has
// come.
asio::awaitable<Exchange::Holding> Exchange::AskForResponse(
    const config::FleetEngine& engine) {
  const Conversation::Patience patience = {service_->limits.connect_s,
                                           service_->limits.lookup_s};
  const Ended ended = co_await Converse(engine, request_->target(), patience);
  const bool answered = ended == Ended::kWhole;
  const bool elsewhere = answered && IsElsewhere(talk_.answer()->status());
  const bool here =
      answered && !elsewhere && !IsSilent(talk_.answer()->status());
  if (!here) {
    std::string ignored;
    if (answered && co_await talk_.ReadBeginning(&ignored)) talk_.Keep();
    talk_.End();
  }
  client_->Unguard();
  if (here) co_return Holding::kHas;
  co_return elsewhere ? Holding::kHasNot : Holding::kUnknown;
}

asio::awaitable<void> Exchange::RelayResponse(
    const config::FleetEngine& engine) {
  model_ = engine.model;
  ForwardTo(engine);
  life_->model = model_;
  NoteAttempt();
  NoteEngine(engine);
  life_->attempt().head_ns = service_->clock->NowNs();
  BeginAttempt();
  const Ended ended = co_await Relay();
  if (ended == Ended::kWhole) talk_.Keep();
  co_await Conclude(client_gone_ ? Ended::kClientGone : ended);
}

}  // namespace fineserve::proxy
