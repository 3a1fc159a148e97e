#include "daemon/fineserved/exporter/exporter.h"

#include <sys/eventfd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/http/head.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/base/log/log.h"
#include "daemon/base/quiet_thread.h"
#include "daemon/fineserved/exporter/snapshot_text.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::exporter {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using proxy::LocalAnswer;
using proxy::RequestParser;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr int kBacklog = 64;
constexpr size_t kReadBytes = 4096;
// Pause before the next accept when no descriptor is left for a new connection.
constexpr std::chrono::milliseconds kAcceptRest(100);
constexpr std::chrono::seconds kFormerFresh(10);

// One scraper's connection, closed when its deadline passes.
struct Connection {
  Connection(tcp::socket s, asio::io_context* io)
      : socket(std::move(s)), deadline(*io) {}

  tcp::socket socket;
  asio::steady_timer deadline;
  proxy::ByteBuffer received;

  void Guard(const std::shared_ptr<Connection>& self, uint32_t seconds) {
    deadline.expires_after(std::chrono::seconds(seconds));
    deadline.async_wait([self](error_code e) {
      error_code ignored;
      if (!e) self->socket.close(ignored);
    });
  }
};

class AsioExporter final : public Exporter {
 public:
  AsioExporter(CountFormer count_former, const Limits& limits)
      : limits_(limits),
        count_former_(std::move(count_former)),
        wanted_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~AsioExporter() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const std::string& host, uint16_t port) {
    error_code e;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(host, absl::StrCat(port), tcp::resolver::passive, e);
    if (!e) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor_.open(endpoint.protocol(), e);
      if (!e) acceptor_.set_option(tcp::acceptor::reuse_address(true), e);
      if (!e) acceptor_.bind(endpoint, e);
      if (!e) acceptor_.listen(kBacklog, e);
    }
    if (!e) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", host, ":", port, " for metrics: ", e.message(),
        "; give another --metrics"));
  }

  void Begin() {
    asio::co_spawn(io_, Accept(), asio::detached);
    thread_ = base::QuietThread([this] { io_.run(); });
  }

  std::string address() const override {
    error_code ignored;
    const tcp::endpoint at = acceptor_.local_endpoint(ignored);
    const std::string host = at.address().to_string();
    return at.address().is_v6() ? absl::StrCat("[", host, "]:", at.port())
                                : absl::StrCat(host, ":", at.port());
  }

  int descriptor() const override { return wanted_.get(); }

  void Give(metrics::Snapshot snapshot, uint64_t took_ns) override {
    eventfd_t count;
    eventfd_read(wanted_.get(), &count);
    auto given = std::make_shared<const metrics::Snapshot>(std::move(snapshot));
    asio::post(io_, [this, given = std::move(given), took_ns] {
      loop_s_ += static_cast<double>(took_ns) * 1e-9;
      for (Wait* wait : std::exchange(waits_, {})) {
        wait->snapshot = given;
        wait->patience.cancel();
      }
    });
  }

 private:
  // An answer's wait for the main thread.
  struct Wait {
    asio::steady_timer patience;
    std::shared_ptr<const metrics::Snapshot> snapshot;
  };

  asio::awaitable<void> Accept() {
    for (;;) {
      auto [e, socket] = co_await acceptor_.async_accept(kTuple);
      if (e == asio::error::operation_aborted) co_return;
      if (e) {
        log::Warning("metrics: cannot accept a connection: {}", e.message());
        asio::steady_timer rest(io_, kAcceptRest);
        co_await rest.async_wait(kTuple);
        continue;
      }
      proxy::Prepare(&socket);
      // A scraper whose connection is refused tries again by itself.
      if (connections_ >= limits_.connections) continue;
      ++connections_;
      asio::co_spawn(
          io_, Serve(std::make_shared<Connection>(std::move(socket), &io_)),
          asio::detached);
    }
  }

  asio::awaitable<void> Serve(std::shared_ptr<Connection> c) {
    while (co_await ServeOne(c)) {
    }
    c->deadline.cancel();
    error_code ignored;
    c->socket.close(ignored);
    --connections_;
  }

  // Reads and discards what the client still sends. Otherwise a reset could
  // reach the client before the answer.
  asio::awaitable<void> Linger(std::shared_ptr<Connection> c) {
    error_code e;
    c->socket.shutdown(tcp::socket::shutdown_send, e);
    c->Guard(c, limits_.linger_s);
    while (!e) {
      c->received.Consume(c->received.bytes().size());
      e = co_await proxy::ReadSome(&c->socket, &c->received, kReadBytes);
    }
  }

  // Serves one request. False if the connection must be closed.
  asio::awaitable<bool> ServeOne(std::shared_ptr<Connection> c) {
    RequestParser request(limits_.header_bytes, /*body_bytes=*/0);
    bool begun = !c->received.empty();
    c->Guard(c, begun ? limits_.receive_s : limits_.idle_s);
    for (;;) {
      c->received.Consume(request.Feed(c->received.bytes()));
      if (request.error() || request.done()) break;
      if (co_await proxy::ReadSome(&c->socket, &c->received, kReadBytes)) {
        co_return false;
      }
      if (!std::exchange(begun, true)) c->Guard(c, limits_.receive_s);
    }
    c->deadline.cancel();
    // After bytes that are not a request, the start of the next request is
    // unknown.
    const bool stays = !request.error() && request.keep_alive();
    const bool to_head = request.header_done() && request.method() == "HEAD";
    LocalAnswer answer;
    if (request.error()) {
      answer = proxy::ErrorAnswer(*request.error());
    } else {
      answer = co_await AnswerTo(request);
    }
    const std::string text =
        proxy::LocalAnswerText(answer, to_head, /*request_id=*/"", stays);
    proxy::Buffers buffers = {asio::buffer(text)};
    c->Guard(c, limits_.send_s);
    error_code e = proxy::WriteNow(&c->socket, &buffers);
    if (!e) e = co_await proxy::WriteRest(&c->socket, &buffers, [](size_t) {});
    c->deadline.cancel();
    if (!e && request.error()) co_await Linger(c);
    co_return !e && stays;
  }

  asio::awaitable<LocalAnswer> AnswerTo(const RequestParser& request) {
    const absl::string_view target =
        request.target().substr(0, request.target().find('?'));
    if (target != "/metrics") {
      co_return proxy::ErrorAnswer(
          proxy::ClientError(404, "not_found", "only /metrics is here"));
    }
    if (request.method() != "GET" && request.method() != "HEAD") {
      LocalAnswer answer = proxy::ErrorAnswer(proxy::ClientError(
          405, "method_not_allowed", "/metrics is to be read: GET or HEAD"));
      absl::StrAppend(&answer.fields, "allow: GET, HEAD\r\n");
      co_return answer;
    }
    const std::shared_ptr<const metrics::Snapshot> snapshot =
        co_await NextSnapshot();
    if (snapshot == nullptr) {
      co_return proxy::ErrorAnswer(
          proxy::ServerError(503, "busy", "fineserved's main thread is busy"));
    }
    ++scrapes_;
    LocalAnswer answer;
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    answer.body = SnapshotText(*snapshot, {scrapes_, loop_s_, Former()});
    co_return answer;
  }

  // Returns the next snapshot; null if none comes in time.
  asio::awaitable<std::shared_ptr<const metrics::Snapshot>> NextSnapshot() {
    Wait wait = {
        asio::steady_timer(io_, std::chrono::milliseconds(limits_.snapshot_ms)),
        nullptr};
    waits_.insert(&wait);
    eventfd_write(wanted_.get(), 1);
    co_await wait.patience.async_wait(kTuple);
    waits_.erase(&wait);
    co_return wait.snapshot;
  }

  uint32_t Former() {
    const SteadyClock::time_point now = SteadyClock::now();
    if (count_former_ && now >= former_until_) {
      former_ = count_former_();
      former_until_ = SteadyClock::now() + kFormerFresh;
    }
    return former_;
  }

  const Limits limits_;
  const CountFormer count_former_;
  const driver::Descriptor wanted_;  // an eventfd
  // The members below are confined to the exporter's thread once it runs.
  size_t connections_ = 0;
  uint64_t scrapes_ = 0;
  double loop_s_ = 0;
  std::set<Wait*> waits_;
  uint32_t former_ = 0;
  SteadyClock::time_point former_until_;
  // Declared after the objects that its coroutines refer to.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Start(
    const std::string& host, uint16_t port, CountFormer count_former,
    const Limits& limits) {
  auto exporter =
      std::make_unique<AsioExporter>(std::move(count_former), limits);
  const absl::Status s = exporter->Listen(host, port);
  if (!s.ok()) return s;
  exporter->Begin();
  return exporter;
}

}  // namespace fineserve::exporter
