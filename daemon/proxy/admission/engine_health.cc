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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kPeriod(1000);
constexpr std::chrono::milliseconds kPatience(2000);

// Whether the engine answers its /health with 200.
asio::awaitable<bool> AnswersWell(config::FleetEngine engine) {
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code e = co_await Connect(&socket, engine.host, engine.port);
  if (e) co_return false;
  Prepare(&socket);
  const std::string request =
      absl::StrCat("GET /health HTTP/1.1\r\nHost: ", engine.host, ":",
                   engine.port, "\r\nConnection: close\r\n\r\n");
  Buffers buffers = {asio::buffer(request)};
  e = co_await WriteRest(&socket, &buffers, [] {});
  ByteBuffer answer;
  constexpr absl::string_view kGood = "HTTP/1.1 200";
  while (!e && answer.bytes().size() < kGood.size()) {
    e = co_await ReadSome(&socket, &answer, 4096);
  }
  co_return absl::StartsWith(answer.bytes(), kGood);
}

asio::awaitable<bool> AnswersInTime(config::FleetEngine engine) {
  using asio::experimental::awaitable_operators::operator||;
  asio::steady_timer timer(co_await asio::this_coro::executor, kPatience);
  const auto first =
      co_await (AnswersWell(std::move(engine)) || timer.async_wait(kTuple));
  co_return first.index() == 0 && std::get<0>(first);
}

}  // namespace

EngineHealth::EngineHealth(asio::io_context* io, DaemonAdmission* admission)
    : io_(io), admission_(admission) {}

void EngineHealth::Start() { asio::co_spawn(*io_, Run(), asio::detached); }

asio::awaitable<void> EngineHealth::Run() {
  asio::steady_timer timer(*io_);
  for (;;) {
    AskAll();
    timer.expires_after(kPeriod);
    co_await timer.async_wait(kTuple);
  }
}

void EngineHealth::AskAll() {
  for (const config::FleetEngine& engine : admission_->engines()) {
    asio::co_spawn(*io_, AnswersInTime(engine),
                   [this, name = engine.name](std::exception_ptr, bool serves) {
                     admission_->SetHealth(name, serves);
                   });
  }
}

}  // namespace fineserve::proxy
