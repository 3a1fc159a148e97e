#include "daemon/proxy/daemon_link.h"

#include <glob.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/log/log.h"

namespace fineserve::proxy {
namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kBeat(250);
// Heuristic: short beside an engine's step, long beside a client's next
// request.
constexpr std::chrono::milliseconds kPutOff(2);
constexpr std::chrono::milliseconds kHealthPeriod(1000);
constexpr std::chrono::milliseconds kHealthPatience(2000);

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
  asio::steady_timer timer(co_await asio::this_coro::executor, kHealthPatience);
  const auto first =
      co_await (AnswersWell(std::move(engine)) || timer.async_wait(kTuple));
  co_return first.index() == 0 && std::get<0>(first);
}

}  // namespace

absl::StatusOr<std::string> FindAdmissionPath(const std::string& folder,
                                              const std::string& gpu) {
  const std::string begin = gpu.empty() ? "GPU-" : gpu;
  glob_t found = {};
  glob(wire::AdmissionPath(folder + "/" + begin + "*").c_str(), 0, nullptr,
       &found);
  const size_t count = found.gl_pathc;
  const std::string first = count > 0 ? found.gl_pathv[0] : "";
  globfree(&found);
  if (count == 1) return first;
  if (count == 0) {
    return absl::NotFoundError(absl::StrCat("no fineserved takes requests for ",
                                            begin, "* in ", folder,
                                            "; start one with --fleet"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(count, " daemons take requests for ", begin, "* in ", folder,
                   "; give each [[engine]] of the fleet its gpu, long enough"));
}

DaemonLink::DaemonLink(asio::io_context* io, std::string folder,
                       std::string gpu, DaemonAdmission* admission)
    : io_(io),
      folder_(std::move(folder)),
      gpu_(std::move(gpu)),
      admission_(admission),
      flush_timer_(*io) {
  admission_->SetSend([this](absl::string_view bytes) {
    if (!socket_ || !socket_->Send(bytes)) return false;
    // ZeroMQ may have swallowed the signal of something to read.
    DrainSoon();
    return true;
  });
  admission_->SetPutOff([this] { FlushSoon(); });
}

void DaemonLink::DrainSoon() {
  if (std::exchange(drains_, true)) return;
  asio::post(*io_, [this] {
    drains_ = false;
    Drain();
  });
}

void DaemonLink::FlushSoon() {
  if (std::exchange(flushes_, true)) return;
  flush_timer_.expires_after(kPutOff);
  flush_timer_.async_wait([this](error_code) {
    flushes_ = false;
    admission_->Flush();
  });
}

void DaemonLink::Start() {
  asio::co_spawn(*io_, Beat(), asio::detached);
  asio::co_spawn(*io_, AskHealth(), asio::detached);
}

asio::awaitable<void> DaemonLink::Beat() {
  asio::steady_timer timer(*io_);
  for (;;) {
    if (!socket_) Open();
    admission_->Tick();
    Drain();
    timer.expires_after(kBeat);
    co_await timer.async_wait(kTuple);
  }
}

void DaemonLink::Open() {
  absl::StatusOr<std::string> path = FindAdmissionPath(folder_, gpu_);
  absl::Status s = path.status();
  if (s.ok()) {
    absl::StatusOr<wire::ClientSocket> socket =
        wire::ClientSocket::Connect(*path);
    s = socket.status();
    if (s.ok()) socket_.emplace(*std::move(socket));
  }
  if (s.ok()) {
    asio::co_spawn(*io_, Listen(), asio::detached);
    AskEngines();
    return;
  }
  if (!std::exchange(told_, true)) {
    log::Warning("{}", std::string(s.message()));
  }
  admission_->GoOn();
}

asio::awaitable<void> DaemonLink::Listen() {
  // A descriptor of our own: the socket's belongs to ZeroMQ.
  asio::posix::stream_descriptor readable(*io_, dup(socket_->descriptor()));
  for (;;) {
    const auto [e] = co_await readable.async_wait(
        asio::posix::stream_descriptor::wait_read, kTuple);
    if (e) co_return;
    Drain();
  }
}

void DaemonLink::Drain() {
  if (!socket_) return;
  while (const absl::optional<std::string> bytes = socket_->Receive()) {
    admission_->Receive(*bytes);
  }
}

asio::awaitable<void> DaemonLink::AskHealth() {
  asio::steady_timer timer(*io_);
  for (;;) {
    timer.expires_after(kHealthPeriod);
    co_await timer.async_wait(kTuple);
    if (socket_) AskEngines();  // only a daemon wants to know
  }
}

void DaemonLink::AskEngines() {
  for (const config::FleetEngine& engine : admission_->engines()) {
    asio::co_spawn(*io_, AnswersInTime(engine),
                   [this, name = engine.name](std::exception_ptr, bool serves) {
                     admission_->SetHealth(name, serves);
                   });
  }
}

}  // namespace fineserve::proxy
