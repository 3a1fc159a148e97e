#ifndef DAEMON_PROXY_ADMISSION_DAEMON_ADMISSION_H_
#define DAEMON_PROXY_ADMISSION_DAEMON_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/admission/demand_book.h"
#include "daemon/proxy/admission/engine_states.h"
#include "daemon/proxy/admission/model_waits.h"
#include "daemon/proxy/admission/open_admission.h"

namespace fineserve::proxy {

// Admission to the engines of one GPU, by the scheduler of its fineserved
// (daemon/contract/wire/admission.fbs) or, while there is none, without it.
// FleetAdmission has one for each GPU. Knows nothing of sockets or timers:
// AdmissionChannel brings messages and calls Tick.
//
// Owns the conversation with the daemon: its epoch, and the requests that wait
// for its word or run here. EngineStates knows the engines,
// ModelWaits the daemon's queues, OpenAdmission the load.
//
// Deaths are handled as follows. A daemon that has said Goodbye, or has sent
// nothing for kPatienceNs, counts as gone: requests that wait, and new ones,
// are decided by OpenAdmission (fail_open) or refused (fail_closed). Those that
// the daemon admitted go on without it. A daemon that is new, as its epoch
// shows, that has forgotten this proxy, or that a message did not reach, is
// sent the requests that run and is asked again about those that wait, with the
// time that each has waited.
class GpuAdmission {
 public:
  static constexpr uint64_t kHelloNs = 1'000'000'000;
  static constexpr uint64_t kPatienceNs = 2'500'000'000;
  // Retry-After of a 503: about as long as a supervisor needs to restart the
  // daemon.
  static constexpr uint32_t kRetryAfterMs = 2000;
  // If the daemon has said nothing about a request for this long, the request
  // also goes to other GPUs. Heuristic: many times a round trip between
  // machines.
  static constexpr uint64_t kUnheardNs = 200'000'000;

  // Sends to the daemon; false while there is no connection.
  using SendBytes = std::function<bool(absl::string_view bytes)>;

  // `clock` outlives it.
  GpuAdmission(std::shared_ptr<const config::Fleet> fleet, const Clock* clock);

  void SetSend(SendBytes send) { send_ = std::move(send); }
  // Holds back the message that a request has ended, which matters only to
  // requests that wait. While none waits here, it goes with the next message,
  // which spares both sides a wake-up. `on_hold` is called for the first
  // message held back and sees to it that Flush is called within milliseconds.
  // Without `on_hold` nothing is held back.
  void SetHold(std::function<void()> on_hold) { on_hold_ = std::move(on_hold); }
  void Flush();
  // Set the demand that each greeting reports to the daemon, and the plan that
  // it asks the daemon for. Both belong to the whole fleet and must outlive
  // this object. Without these calls, or with null, there is none.
  void SetDemand(const DemandBook* demand) { demand_ = demand; }
  void SetPlan(wire::NewestPlan* plan);
  // Asks an engine for its /health, whenever one is suspected.
  using Probe = std::function<void(const config::FleetEngine& engine)>;
  void SetProbe(Probe probe) { probe_ = std::move(probe); }
  // Notes a new connection to the daemon, which knows nothing of what was sent
  // before.
  void Connected();
  // Handles one message from the daemon.
  void Receive(absl::string_view bytes);
  // Must be called several times a second.
  void Tick();
  // Goes on without a daemon: requests that wait, and those that come before a
  // daemon sends Welcome, are decided without one. Tick notices a silent daemon
  // by itself, after kPatienceNs.
  void GoOn();
  // Like the functions of EngineStates; they also notify the daemon of changes.
  void SetHealth(const std::string& engine, EngineStates::Health health,
                 uint64_t asked_ns = 0);
  void Rest(const std::vector<std::string>& engines,
            const std::vector<std::string>& stopped, uint64_t until_ns);
  EngineStates& states() { return states_; }
  const EngineStates& states() const { return states_; }

  // The callbacks of a request that other GPUs can take, too.
  struct Tie {
    // Called if the request waits here, or if nothing has been heard of it for
    // long. May be called more than once.
    std::function<void()> on_waits;
    // Called if the daemon is gone. Returns true if the request goes on
    // elsewhere and is forgotten here, false if it is decided without a daemon.
    std::function<bool()> on_lost;
    bool asked_before = false;  // of another GPU
  };
  // The calls for a request come in the same order as Admission's.
  void Submit(AdmissionRequest request, std::function<void(Verdict)> on_verdict,
              Tie tie);
  void Submit(AdmissionRequest request,
              std::function<void(Verdict)> on_verdict) {
    Submit(std::move(request), std::move(on_verdict), Tie());
  }
  // Takes the request back, because another GPU has admitted it.
  void Withdraw(uint64_t id);

  void Cancel(uint64_t id);
  void FirstToken(uint64_t id);
  // Notes the progress, which the next Tick reports to the daemon.
  void Progress(uint64_t id, uint32_t output_tokens);
  void Finished(uint64_t id, uint32_t prompt_tokens, uint32_t output_tokens,
                Outcome outcome);
  void Suspect(const std::string& engine);
  void SetFleet(std::shared_ptr<const config::Fleet> fleet);
  // Tells the daemon which engines serve, if that has changed.
  void TellServing();
  bool Ready() const;
  // Number of requests that were admitted without a daemon.
  uint64_t unscheduled() const { return unscheduled_; }
  std::map<std::string, uint64_t> RunningByEngine() const;

  bool HasDaemon() const { return epoch_ != 0; }
  // Seconds since the daemon was last heard.
  double UnheardS() const {
    return static_cast<double>(clock_->NowNs() - heard_ns_) * 1e-9;
  }
  const ModelWaits& waits() const { return waits_; }
  absl::optional<PeerReading> ReadingOf(const std::string& engine) const;
  // Tokens outstanding on the engine of this name.
  uint64_t Outstanding(const std::string& engine) const {
    return alone_.outstanding(engine);
  }
  const std::vector<config::FleetEngine>& engines() const {
    return fleet_->engines;
  }

 private:
  struct Waiting {
    AdmissionRequest request;
    std::function<void(Verdict)> on_verdict;
    Tie tie;                // empty: no other GPU has it
    uint64_t since_ns = 0;  // when it was submitted here
    bool reported = false;  // on_waits has been called
  };
  struct Running {
    AdmissionRequest request;
    std::string engine;
    uint32_t output_tokens = 0;
    uint32_t told_tokens = 0;      // of these, those reported to the daemon
    EngineSigns* signs = nullptr;  // of its engine
  };

  template <typename Body>
  void Tell(uint64_t id, Body body);
  void Send(const std::string& message);
  void SetEpoch(uint64_t epoch);
  void Hello(bool reset);
  void TellProgress();
  void Ask(const Waiting& waiting);
  void TellWaits(uint64_t id);
  // Calls on_waits for the requests that were submitted before `before_ns` and
  // of which nothing has been heard.
  void TellUnheard(uint64_t before_ns);
  void Waits(uint64_t id, const wire::WaitsT& waits);
  void Lose(uint64_t id);
  void EndCancelled(uint64_t id, bool elsewhere);
  void Welcomed(uint64_t epoch);
  void NotePlan(const wire::WelcomeT& welcome);
  void NoteReading(const wire::WelcomeT& welcome);
  // The engines' names, for the log.
  std::string Names() const;
  void Decided(uint64_t id, const wire::VerdictT& verdict);
  // Returns the engine for the request. The daemon does not know that a request
  // avoids an engine. If it chose that engine, the request goes to another
  // engine of the model, and the daemon's books are off by one request until
  // that ends.
  std::string EngineFor(const AdmissionRequest& request,
                        const std::string& chosen) const;
  void Runs(AdmissionRequest request, const std::string& engine);
  void Refused(uint64_t id, const wire::RefusedT& refused);
  // Number of the plan that this object follows; 0: none.
  uint64_t PlanNumber() const;
  // `waited_for` is the reason why the request has waited so far.
  void DecideAlone(Waiting waiting, WaitedFor waited_for);
  // Takes the request out of waiting_ before its callback runs, which may
  // submit another.
  Waiting Take(uint64_t id);

  std::shared_ptr<const config::Fleet> fleet_;
  const Clock* const clock_;
  const DemandBook* demand_ = nullptr;
  wire::NewestPlan* plan_ = nullptr;
  Probe probe_ = [](const config::FleetEngine&) {};
  SendBytes send_ = [](absl::string_view) { return false; };
  std::function<void()> on_hold_ = [this] { Flush(); };
  std::vector<std::string> held_;  // messages of this epoch
  EngineStates states_;
  ModelWaits waits_;
  std::map<std::string, PeerReading> reading_;  // by engine
  OpenAdmission alone_;
  std::map<std::string, bool> told_serves_;  // to the daemon, by engine
  uint64_t told_plan_ = 0;                   // to the daemon
  // By id, so that a new daemon is asked in the order of arrival.
  std::map<uint64_t, Waiting> waiting_;
  std::unordered_map<uint64_t, Running> running_;
  uint64_t unscheduled_ = 0;  // requests admitted without a daemon
  uint64_t epoch_ = 0;        // of the daemon; 0: away
  bool away_ = false;         // absent, or silent for too long
  uint64_t heard_ns_;
  uint64_t greeted_ns_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_DAEMON_ADMISSION_H_
