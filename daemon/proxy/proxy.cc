#include "daemon/proxy/proxy.h"

#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/base/http/random_hex.h"
#include "daemon/base/http/socket_io.h"
#include "daemon/base/log/log.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "daemon/fleet/door/fleet_holder.h"
#include "daemon/proxy/listener.h"
#include "daemon/proxy/page/frame.h"
#include "daemon/proxy/relay/connection.h"
#include "daemon/proxy/relay/service.h"
#include "daemon/proxy/tls/tls_front.h"

namespace fineserve::proxy {
namespace {

// Period of the check of deadlines, and so their resolution.
constexpr std::chrono::milliseconds kSweep(250);
// Pause before the next accept when no descriptor is left for a new connection.
constexpr std::chrono::milliseconds kAcceptRest(100);
// Threads that read large bodies, several so that one slow body does not hold
// up another.
constexpr size_t kReaders = 2;
// Longer than anything takes.
constexpr std::chrono::seconds kEndBound(5);

std::string AddressOf(const tcp::acceptor& acceptor) {
  error_code ignored;
  return AddressText(acceptor.local_endpoint(ignored));
}

class AsioProxy final : public Proxy, private apply::FleetHolder {
 public:
  AsioProxy(const Setup& setup, const Limits& limits,
            const std::string& runtime_folder, Admission* admission,
            const Clock* clock,
            std::function<absl::StatusOr<Setup>()> read_again,
            const Hearers& hearers, TlsFront* tls)
      : read_again_(std::move(read_again)), tls_(tls) {
    service_.clock = clock;
    service_.limits = limits;
    service_.bodies = BodyBudget(limits.bodies_bytes);
    service_.readers = &readers_;
    service_.log_reader = &log_reader_;
    service_.logs.folder = runtime_folder;
    service_.admission = admission;
    service_.via = absl::StrCat("fineserve-", RandomHex().Next(8));
    clock_zero_ms_ = absl::ToUnixMillis(absl::Now()) -
                     static_cast<int64_t>(clock->NowNs() / 1'000'000);
    service_.feed = std::make_unique<Feed>(&io_, runtime_folder, clock,
                                           [this] { return Sight(); });
    SetHearers(hearers);
    // Handled even without an access log, because the signal would otherwise
    // end the proxy.
    signals_.add(SIGUSR1);
  }

  // Closes sockets before the context that they belong to ends.
  ~AsioProxy() override {
    service_.feed->Stop();
    service_.engines.CloseAll();
    if (knocks_) knocks_->release();  // the door closes it
  }

  absl::Status Bind(const Setup& setup) {
    absl::Status s = Adopt(setup);
    if (!s.ok()) return s;
    const config::ProxySettings& at = fleet().proxy;
    s = ListenAcrossRestarts(at.listen_host, at.listen_port, &public_);
    s.Update(Listen(at.admin_host, at.admin_port, &admin_));
    return s;
  }

  std::string listen_address() const override { return AddressOf(public_); }
  std::string admin_address() const override { return AddressOf(admin_); }

  absl::Status OpenDoor(const std::string& folder,
                        const std::string& fleet_path) override {
    fleet_path_ = service_.logs.fleet_path = config::FleetPath(fleet_path);
    auto door = apply::Door::Open(
        folder, apply::ProcessDoor("proxy"),
        [this](const apply::Question& q) { return Reply(q); });
    if (!door.ok()) return door.status();
    door_ = *std::move(door);
    knocks_.emplace(io_, door_->descriptor());
    return absl::OkStatus();
  }

  asio::io_context* context() override { return &io_; }

  void Serve() override {
    Spawn(Accept(&public_, Port::kPublic));
    Spawn(Accept(&admin_, Port::kAdmin));
    Spawn(Sweep());
    Spawn(HearSignals());
    if (knocks_) Spawn(AnswerDoor());
    sd_notify(0, "READY=1");
    io_.run();
    EndConnections();
  }

 private:
  const config::Fleet& fleet() const { return *service_.routes->fleet(); }

  void SetHearers(const Hearers& hearers) {
    service_.recorder.Keep(hearers.recent_requests);
    service_.recorder.SetLog(hearers.access_log);
    service_.exporter = hearers.exporter;
    if (hearers.exporter == nullptr) return;
    service_.tracer.TurnOn(hearers.trace_sample);
    service_.recorder.SetOnEnd([to = hearers.exporter](const auto& life) {
      if (life->sampled) to->Send(life);
    });
  }

  void Spawn(asio::awaitable<void> work) {
    asio::co_spawn(io_, std::move(work), asio::detached);
  }

  // Returns the page's data about this proxy.
  std::string Sight() const {
    return ProxyPart({&fleet(), service_.admission, &service_.traffic,
                      &service_.recorder, service_.draining,
                      service_.clock->NowNs(), clock_zero_ms_,
                      service_.limits.log_s != 0});
  }

  asio::awaitable<void> Accept(tcp::acceptor* acceptor, Port port) {
    while (acceptor->is_open()) {
      auto [e, socket] = co_await acceptor->async_accept(kTuple);
      if (e == asio::error::operation_aborted) co_return;
      if (e) {
        log::Warning("cannot accept a connection: {}", e.message());
        asio::steady_timer rest(io_, kAcceptRest);
        co_await rest.async_wait(kTuple);
        continue;
      }
      if (port == Port::kPublic && tls_ != nullptr) {
        WelcomeByTls(std::move(socket));
      } else {
        Welcome(std::move(socket), port, "");
      }
    }
  }

  // If the proxy is full, closes without an answer, which the client could not
  // read before the handshake.
  void WelcomeByTls(tcp::socket socket) {
    if (tls_->open() >= service_.limits.connections) {
      service_.metrics.CountConnectionRefused();
      return;
    }
    Prepare(&socket);
    Spawn(tls_->Serve(std::move(socket),
                      [this](tcp::socket plain, const std::string& client) {
                        Welcome(std::move(plain), Port::kPublic, client);
                      }));
  }

  // `client` is its address; empty if the socket knows it.
  void Welcome(tcp::socket socket, Port port, const std::string& client) {
    Prepare(&socket);
    const bool full =
        service_.connections.size() >= service_.limits.connections;
    const auto connection = std::make_shared<Connection>(
        std::move(socket), port, &service_, client);
    // The admin port stays open, so that an operator can see why the public
    // port is full.
    if (full && port == Port::kPublic) {
      service_.metrics.CountConnectionRefused();
      connection->Refuse();
    } else {
      Spawn(connection->Serve());
    }
  }

  // Checks the deadlines of all connections, idle connections to engines, and
  // the end of a drain.
  asio::awaitable<void> Sweep() {
    asio::steady_timer timer(io_);
    bool was_late = false;
    for (;;) {
      timer.expires_after(kSweep);
      co_await timer.async_wait(kTuple);
      // If this process was stopped, the loop first reads what has come since.
      const bool late =
          std::chrono::steady_clock::now() > timer.expiry() + kSweep;
      if (!std::exchange(was_late, late) && late) continue;
      service_.admission->Tick();
      const uint64_t now_ns = service_.clock->NowNs();
      ForEachConnection([=](Connection* c) { c->CheckDeadline(now_ns); });
      service_.engines.CloseIdle(now_ns);
      if (tls_ != nullptr) {
        service_.metrics.SetFailedHandshakes(tls_->failed_handshakes());
        service_.metrics.SetCertificateExpiry(
            absl::ToDoubleSeconds(tls_->expiry() - absl::UnixEpoch()));
      }
      if (service_.draining) CheckDrain(now_ns);
    }
  }

  template <typename Act>
  void ForEachConnection(Act act) {
    // `act` may close connections: this only cancels, and the set changes in a
    // later turn of the loop.
    for (Connection* connection : service_.connections) act(connection);
  }

  asio::awaitable<void> HearSignals() {
    for (;;) {
      const auto [e, signal] = co_await signals_.async_wait(kTuple);
      if (e) co_return;
      if (signal == SIGHUP) {
        Reload();
      } else if (signal == SIGUSR1) {
        if (AccessLog* log = service_.recorder.log()) log->Reopen();
      } else if (service_.draining) {
        io_.stop();
      } else {
        BeginDrain();
      }
    }
  }

  void ReloadCertificate() {
    if (tls_ == nullptr) return;
    const absl::Status s = tls_->Reload();
    if (s.ok()) {
      log::Info("reloaded the certificate, for new connections");
    } else {
      log::Error("keeping the present certificate: {}",
                 std::string(s.message()));
    }
  }

  asio::awaitable<void> AnswerDoor() {
    for (;;) {
      const auto [e] = co_await knocks_->async_wait(
          asio::posix::stream_descriptor::wait_read, kTuple);
      if (e) co_return;
      door_->Turn();
    }
  }

  void Reload() {
    ReloadCertificate();
    const absl::Status taken = TakeAgain();
    if (taken.ok()) return;
    log::Error("keeping the present fleet: {}", std::string(taken.message()));
  }

  void DescribeTo(apply::Answer* answer) const override {
    answer->process = "fineserve-proxy";
    answer->pid = getpid();
    answer->fleet_path = fleet_path_;
    answer->fleet = written_;
    answer->admin = admin_address();
    answer->daemons = service_.admission->Daemons();
    answer->away_s = service_.admission->AwayS();
    answer->unscheduled = service_.admission->Unscheduled();
    if (tls_ != nullptr && tls_->expiry() != absl::InfiniteFuture()) {
      answer->certificate_s =
          absl::ToDoubleSeconds(tls_->expiry() - absl::Now());
    }
    std::map<std::string, apply::EngineState> engines;
    for (const auto& [engine, running] :
         service_.admission->RunningByEngine()) {
      engines[engine].running = running;
    }
    for (const auto& [engine, demand] : service_.admission->DemandOnRequest()) {
      engines[engine].waiting = demand.waiting;
      engines[engine].idle_s = demand.idle_s;
    }
    for (auto& [engine, state] : engines) {
      state.name = engine;
      answer->engines.push_back(std::move(state));
    }
  }

  absl::StatusOr<config::FleetDescription> Read(
      std::vector<std::string>* notes) override {
    absl::StatusOr<Setup> setup = read_again_();
    if (!setup.ok()) return setup.status();
    if (LosesKeys(*setup)) {
      return absl::FailedPreconditionError(
          "it has keys and the new one names none, so that every client would "
          "be served; write open = true into its [proxy] if that is meant");
    }
    const config::ProxySettings& now = fleet().proxy;
    const config::ProxySettings& then = setup->fleet->proxy;
    if (now.listen_host != then.listen_host ||
        now.listen_port != then.listen_port ||
        now.admin_host != then.admin_host ||
        now.admin_port != then.admin_port) {
      notes->push_back("restart fineserve-proxy to change listen and admin");
    }
    if (ledger_path_ != setup->ledger_path) {
      notes->push_back("restart fineserve-proxy to change ledger");
    }
    found_ = *std::move(setup);
    return found_->written;
  }

  absl::Status TakeRead() override {
    const absl::Status s = Adopt(*found_);
    if (!s.ok()) return s;
    service_.admission->SetFleet(found_->fleet);
    found_.reset();
    log::Info("reloaded the fleet: {} models, {} engines",
              fleet().models.size(), fleet().engines.size());
    return absl::OkStatus();
  }

  absl::Status Other(const apply::Question& question) override {
    if (question.kind == apply::Question::Kind::kStarts) {
      service_.admission->HearStarts(question.starts);
      return absl::OkStatus();
    }
    if (question.kind != apply::Question::Kind::kRest) {
      return FleetHolder::Other(question);
    }
    const auto rest_ns = static_cast<uint64_t>(question.seconds * 1e9);
    service_.admission->Rest(question.engines, question.stopped,
                             service_.clock->NowNs() + rest_ns);
    return absl::OkStatus();
  }

  // True if clients need a key now and would not need one after the change,
  // although the new fleet does not say `open`.
  bool LosesKeys(const Setup& setup) const {
    return !service_.routes->keys().is_open() && setup.keys.is_open() &&
           !setup.fleet->proxy.open;
  }

  // Takes over the new setup. If it returns an error, nothing has changed.
  absl::Status Adopt(const Setup& setup) {
    if (ledger_path_.empty()) ledger_path_ = setup.ledger_path;
    const absl::Status s =
        service_.accounts.Adopt(setup.keys, setup.ledger_path);
    if (!s.ok()) return s;
    if (!setup.warning.empty()) log::Warning("{}", setup.warning);
    service_.routes =
        std::make_shared<Routes>(setup.fleet, setup.keys, setup.outside_keys);
    written_ = setup.written;
    for (const config::FleetEngine& engine : fleet().engines) {
      service_.metrics.AddEngine(engine.name);
    }
    return absl::OkStatus();
  }

  // The admin port stays open, so that it can be seen that the proxy is not
  // ready.
  void BeginDrain() {
    service_.draining = true;
    drained_by_ns_ =
        service_.clock->NowNs() + fleet().proxy.drain_s * 1'000'000'000ull;
    log::Info("draining: {} connections, at most {} s",
              service_.connections.size(), fleet().proxy.drain_s);
    sd_notify(0, "STOPPING=1");
    error_code ignored;
    public_.close(ignored);
    ForEachConnection([](Connection* c) { c->CloseIfIdle(); });
    EndIfDrained();
  }

  void CheckDrain(uint64_t now_ns) {
    if (now_ns >= drained_by_ns_) {
      log::Warning("closing {} connections that did not end in time",
                   service_.connections.size());
      io_.stop();
    }
    EndIfDrained();
  }

  void EndIfDrained() {
    // Bytes that a connection wrote may still be on their way through TLS.
    bool busy = tls_ != nullptr && tls_->open() > 0;
    ForEachConnection([&](Connection* c) { busy |= c->is_busy(); });
    if (!busy) io_.stop();
  }

  // Acts as if all clients had gone: engines abort, and admission learns of it.
  void EndConnections() {
    ForEachConnection([](Connection* c) { c->Abort(); });
    io_.restart();
    const auto end = std::chrono::steady_clock::now() + kEndBound;
    while (!service_.connections.empty() &&
           std::chrono::steady_clock::now() < end) {
      io_.run_one_for(kSweep);
    }
  }

  // Declared before io_, whose coroutines refer to these.
  std::function<absl::StatusOr<Setup>()> read_again_;
  TlsFront* const tls_;  // may be null
  Service service_ = {};
  std::string fleet_path_;
  std::string ledger_path_;            // that is open, once a key has a name
  config::FleetDescription written_;   // of the fleet that it runs
  absl::optional<Setup> found_;        // by Read
  std::unique_ptr<apply::Door> door_;  // null: it could not be opened
  uint64_t drained_by_ns_ = 0;
  int64_t clock_zero_ms_ = 0;  // of service_.clock, as UNIX time
  asio::io_context io_{1};
  tcp::acceptor public_{io_};
  tcp::acceptor admin_{io_};
  asio::signal_set signals_{io_, SIGHUP, SIGTERM, SIGINT};
  absl::optional<asio::posix::stream_descriptor> knocks_;  // at the door
  // Declared after io_, so that it ends first; io_ then destroys what waits for
  // it.
  asio::thread_pool readers_{kReaders};
  asio::thread_pool log_reader_{1};  // as readers_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Proxy>> Proxy::Start(
    const Setup& setup, const Limits& limits, const std::string& runtime_folder,
    Admission* admission, const Clock* clock,
    std::function<absl::StatusOr<Setup>()> read_again, const Hearers& hearers,
    TlsFront* tls) {
  auto proxy =
      std::make_unique<AsioProxy>(setup, limits, runtime_folder, admission,
                                  clock, std::move(read_again), hearers, tls);
  const absl::Status s = proxy->Bind(setup);
  if (!s.ok()) return s;
  return proxy;
}

}  // namespace fineserve::proxy
