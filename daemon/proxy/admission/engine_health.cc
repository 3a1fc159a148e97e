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

#include "daemon/config/health_probe.h"
#include "daemon/proxy/admission/daemon_admission.h"
#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {
namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kPeriod(1000);
constexpr std::chrono::milliseconds kPatience(2000);

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
                   [this, name = engine.name](std::exception_ptr, bool serves) {
                     admission_->SetHealth(name, serves);
                   });
  }
}

}  // namespace fineserve::proxy
