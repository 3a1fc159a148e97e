#include "daemon/proxy/admission/engine_health.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/http/response_parser.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/fleet/config/health_probe.h"

namespace fineserve::proxy {
namespace {

constexpr std::chrono::milliseconds kPeriod(1000);
constexpr std::chrono::milliseconds kPatience(2000);
constexpr size_t kMostModelsBytes = 1 << 20;

using Health = EngineStates::Health;

// True for an error on the path to the engine: nothing there answered before
// the probe was broken off.
bool IsOfTheWay(error_code e) {
  return e == asio::error::host_unreachable ||
         e == asio::error::network_unreachable || e == asio::error::timed_out ||
         e == asio::error::operation_aborted;
}

// Asks the engine for its /health. `so_far` is what is known if the probe is
// broken off.
asio::awaitable<Health> Probe(config::FleetEngine engine, Health* so_far) {
  *so_far = Health::kUnreachable;
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code e = co_await Connect(&socket, engine.host, engine.port);
  if (e == asio::error::host_not_found) co_return Health::kUnknownHost;
  if (IsOfTheWay(e)) co_return Health::kUnreachable;
  *so_far = Health::kDoesNot;
  if (e) co_return Health::kDoesNot;
  Prepare(&socket);
  const std::string request = config::HealthRequest(engine.host, engine.port);
  Buffers buffers = {asio::buffer(request)};
  e = co_await WriteRest(&socket, &buffers, [](size_t) {});
  ByteBuffer answer;
  while (!e && !config::SaysHealthy(answer.bytes())) {
    e = co_await ReadSome(&socket, &answer, 4096);
  }
  const bool serves = config::SaysHealthy(answer.bytes()).value_or(false);
  co_return serves ? Health::kServes : Health::kDoesNot;
}

// Returns nullopt if no answer came in time; `so_far` is then what is known.
asio::awaitable<absl::optional<Health>> ProbeInTime(config::FleetEngine engine,
                                                    Health* so_far) {
  using asio::experimental::awaitable_operators::operator||;
  asio::steady_timer timer(co_await asio::this_coro::executor, kPatience);
  *so_far = Health::kDoesNot;
  const auto first =
      co_await (Probe(std::move(engine), so_far) || timer.async_wait(kTuple));
  if (first.index() == 0) co_return std::get<0>(first);
  // A late timer shows that this process was stopped. It says nothing about the
  // path to the engine.
  const bool late =
      std::chrono::steady_clock::now() > timer.expiry() + kPatience / 4;
  if (late) *so_far = Health::kDoesNot;
  co_return absl::nullopt;
}

// Returns the body of the engine's answer to GET /v1/models; empty if the
// request failed or the status is not 200.
asio::awaitable<std::string> Models(config::FleetEngine engine) {
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code e = co_await Connect(&socket, engine.host, engine.port);
  if (e) co_return "";
  Prepare(&socket);
  const std::string request =
      absl::StrCat("GET /v1/models HTTP/1.1\r\nHost: ", engine.host, ":",
                   engine.port, "\r\nConnection: close\r\n\r\n");
  Buffers buffers = {asio::buffer(request)};
  e = co_await WriteRest(&socket, &buffers, [](size_t) {});
  ByteBuffer received;
  ResponseParser answer(kMostModelsBytes, /*to_head=*/false);
  std::string body;
  while (!e && !answer.done() && !answer.broken() &&
         body.size() < kMostModelsBytes) {
    e = co_await ReadSome(&socket, &received, 4096);
    std::vector<absl::string_view> pieces;
    const size_t taken = answer.Feed(received.bytes(), &pieces);
    for (const absl::string_view piece : pieces) absl::StrAppend(&body, piece);
    received.Consume(taken);
  }
  const bool good = answer.header_done() && answer.status() == 200;
  co_return good ? body : "";
}

asio::awaitable<std::string> ModelsInTime(config::FleetEngine engine) {
  using asio::experimental::awaitable_operators::operator||;
  asio::steady_timer timer(co_await asio::this_coro::executor, kPatience);
  const auto first =
      co_await (Models(std::move(engine)) || timer.async_wait(kTuple));
  co_return first.index() == 0 ? std::get<0>(first) : std::string();
}

// Limit on the names that are shown; an engine with many adapters lists more.
constexpr size_t kMostShown = 4;

std::vector<std::string> IdsIn(absl::string_view body) {
  std::vector<std::string> ids;
  const auto json = nlohmann::json::parse(body.begin(), body.end(), nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("data")) return ids;
  for (const auto& model : json["data"]) {
    if (!model.is_object() || !model.contains("id")) continue;
    if (model["id"].is_string()) ids.push_back(model["id"]);
  }
  return ids;
}

// Escapes an id, since it comes from an engine, may contain anything, and goes
// to a terminal.
std::string Shown(const std::string& id) {
  return absl::StrCat("\"", absl::CHexEscape(id.substr(0, 100)), "\"");
}

}  // namespace

void Liveness::Answered(Health health) {
  health_ = health;
  misses_ = 0;
}

void Liveness::Missed(Health health, bool progressed) {
  misses_ = progressed ? 0 : misses_ + 1;
  if (health_ != Health::kServes || misses_ >= kMost) health_ = health;
}

EngineHealth::EngineHealth(asio::io_context* io, GpuAdmission* admission,
                           const Clock* clock)
    : io_(io), admission_(admission), clock_(clock) {
  admission_->SetProbe(
      [this](const config::FleetEngine& engine) { Suspect(engine); });
}

void EngineHealth::Start() {
  asks_all_ = true;
  Begin();
}

void EngineHealth::Suspect(const config::FleetEngine& engine) {
  suspected_.insert(engine.name);
  Begin();
  Ask(engine);
}

void EngineHealth::Begin() {
  if (std::exchange(begun_, true)) return;
  const auto run = [this]() -> asio::awaitable<void> {
    asio::steady_timer timer(*io_);
    for (;;) {
      AskAll();
      timer.expires_after(kPeriod);
      co_await timer.async_wait(kTuple);
    }
  };
  asio::co_spawn(*io_, run, asio::detached);
}

void EngineHealth::AskAll() {
  for (const config::FleetEngine& engine : admission_->engines()) {
    if (asks_all_ || suspected_.count(engine.name) != 0) Ask(engine);
  }
}

void EngineHealth::Ask(const config::FleetEngine& engine) {
  if (!asked_.insert(engine.name).second) return;
  const uint64_t asked_ns = clock_->NowNs();
  if (admission_->states().Signs(engine.name).unanswered_ns == 0) {
    admission_->states().SetUnanswered(engine.name, asked_ns);
  }
  const auto so_far = std::make_shared<Health>();
  asio::co_spawn(*io_, ProbeInTime(engine, so_far.get()),
                 [this, engine, so_far, asked_ns](
                     std::exception_ptr, absl::optional<Health> health) {
                   Answered(engine,
                            {health.value_or(*so_far), health.has_value()},
                            asked_ns);
                 });
}

void EngineHealth::Answered(const config::FleetEngine& engine, Answer answer,
                            uint64_t asked_ns) {
  asked_.erase(engine.name);
  Liveness& liveness = liveness_[engine.name];
  if (answer.in_time) {
    liveness.Answered(answer.health);
  } else {
    liveness.Missed(
        answer.health,
        admission_->states().Signs(engine.name).progressed_ns > asked_ns);
  }
  if (liveness.misses() == 0)
    admission_->states().SetUnanswered(engine.name, 0);
  admission_->SetHealth(engine.name, liveness.health(), asked_ns);
  if (liveness.health() != Health::kServes) {
    serving_.erase(engine.name);
    // The pod of a replica that is not running has no host name.
    const bool unknown =
        liveness.health() == Health::kUnknownHost && !engine.is_scaled;
    admission_->states().SetTrouble(
        engine.name,
        unknown ? absl::StrCat("the name ", engine.host,
                               " of its machine does not resolve")
                : "",
        asked_ns);
    return;
  }
  if (answer.in_time) suspected_.erase(engine.name);
  if (serving_.insert(engine.name).second) AskForModels(engine);
}

void EngineHealth::AskForModels(const config::FleetEngine& engine) {
  asio::co_spawn(*io_, ModelsInTime(engine),
                 [this, engine](std::exception_ptr, const std::string& body) {
                   admission_->states().SetTrouble(
                       engine.name, TroubleOfModels(body, engine.model));
                 });
}

std::string TroubleOfModels(absl::string_view body, const std::string& model) {
  const std::vector<std::string> ids = IdsIn(body);
  if (ids.empty() || std::count(ids.begin(), ids.end(), model) > 0) return "";
  std::vector<std::string> shown;
  for (const std::string& id : ids) {
    if (shown.size() < kMostShown) shown.push_back(Shown(id));
  }
  return absl::StrCat(
      "it serves ", absl::StrJoin(shown, ", "),
      ids.size() > shown.size() ? " and others" : "", ", not ", Shown(model),
      " as the fleet file says: start it with that name, or correct model");
}

}  // namespace fineserve::proxy
