#include "daemon/proxy/admission/engine_health.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/config/health_probe.h"
#include "daemon/proxy/admission/daemon_admission.h"
#include "daemon/proxy/admission/served_models.h"
#include "daemon/proxy/http/response_parser.h"
#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {
namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kPeriod(1000);
constexpr std::chrono::milliseconds kPatience(2000);
constexpr size_t kMostModelsBytes = 1 << 20;

asio::awaitable<bool> Serves(config::FleetEngine engine) {
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code e = co_await Connect(&socket, engine.host, engine.port);
  if (e) co_return false;
  Prepare(&socket);
  const std::string request = config::HealthRequest(engine.host, engine.port);
  Buffers buffers = {asio::buffer(request)};
  e = co_await WriteRest(&socket, &buffers, [] {});
  ByteBuffer answer;
  while (!e && !config::SaysHealthy(answer.bytes())) {
    e = co_await ReadSome(&socket, &answer, 4096);
  }
  co_return config::SaysHealthy(answer.bytes()).value_or(false);
}

asio::awaitable<bool> ServesInTime(config::FleetEngine engine) {
  using asio::experimental::awaitable_operators::operator||;
  asio::steady_timer timer(co_await asio::this_coro::executor, kPatience);
  const auto first =
      co_await (Serves(std::move(engine)) || timer.async_wait(kTuple));
  co_return first.index() == 0 && std::get<0>(first);
}

// The body of the engine's GET /v1/models; empty if it has none.
asio::awaitable<std::string> Models(config::FleetEngine engine) {
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code e = co_await Connect(&socket, engine.host, engine.port);
  if (e) co_return "";
  Prepare(&socket);
  const std::string request =
      absl::StrCat("GET /v1/models HTTP/1.1\r\nHost: ", engine.host, ":",
                   engine.port, "\r\nConnection: close\r\n\r\n");
  Buffers buffers = {asio::buffer(request)};
  e = co_await WriteRest(&socket, &buffers, [] {});
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

}  // namespace

void EngineHealth::Start() {
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
    asio::co_spawn(*io_, ServesInTime(engine),
                   [this, engine](std::exception_ptr, bool serves) {
                     Answered(engine, serves);
                   });
  }
}

void EngineHealth::Answered(const config::FleetEngine& engine, bool serves) {
  admission_->SetHealth(engine.name, serves);
  if (!serves) serving_.erase(engine.name);
  if (!serves || !serving_.insert(engine.name).second) return;
  asio::co_spawn(*io_, ModelsInTime(engine),
                 [this, engine](std::exception_ptr, const std::string& body) {
                   admission_->SetTrouble(engine.name,
                                          TroubleOfModels(body, engine.model));
                 });
}

}  // namespace fineserve::proxy
