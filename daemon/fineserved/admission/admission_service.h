#ifndef DAEMON_FINESERVED_ADMISSION_ADMISSION_SERVICE_H_
#define DAEMON_FINESERVED_ADMISSION_ADMISSION_SERVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/finding/engine_sights.h"
#include "daemon/contract/metrics/snapshot.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/fineserved/admission/drained_engines.h"
#include "daemon/fineserved/admission/gpu_report.h"
#include "daemon/fineserved/admission/learnt.h"
#include "daemon/fineserved/admission/proxy_book.h"
#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/fineserved/admission/rooms/set_rooms.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/evict/idle_engines.h"
#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/lead/plan_board.h"
#include "daemon/scheduling/local/local_scheduler.h"
#include "daemon/scheduling/overload/drop_turns.h"

namespace fineserve::admission {

// Admission: passes the messages of proxies and fsctl
// (daemon/contract/wire/admission.fbs) to the local scheduler, and its
// decisions back. Knows nothing of sockets or time sources. Confined to the
// daemon's thread.
//
// Deaths are handled as follows. A proxy that is silent for kPeerPatienceNs, or
// that a message did not reach, is dead: its queued requests are forgotten, and
// its running ones count as ended, because engines abort answers that are not
// read. If it lives after all, its next message is refused as ungreeted, and it
// says everything again. An engine counts as serving while a living proxy
// reports that it serves. A restarted daemon learns from each proxy's Hello
// what runs.
//
// One class, in files for requests, plans, reports and figures: each of these
// reads the engines, the proxies' words and the scheduler together. State that
// needs nothing else has its own class: ProxyBook, DrainedEngines, PlanBoard,
// evict::IdleEngines, DemandTotals, DemandWindow.
class AdmissionService {
 public:
  static constexpr uint64_t kPeerPatienceNs = 3'000'000'000;
  // Interval at which proxies send Hello.
  static constexpr uint64_t kHelloNs = 1'000'000'000;

  // Sends to a peer. Returns false if the peer is gone.
  using Send =
      std::function<bool(const std::string& peer, absl::string_view bytes)>;

  // An engine of this machine that may be a replica.
  struct Sight : finding::EngineSight {
    bool in_reach =
        false;  // on this GPU, or on one whose memory this GPU can read
  };
  // Hooks with which replicas give up weights for KV (design note 0047).
  struct Drops {
    // Returns the reason why memory that is given up would not become KV when
    // `short_bytes` are lacking; kDrops if it would.
    std::function<overload::Why(uint64_t short_bytes)> would_grow =
        [](uint64_t) { return overload::Why::kFixedPool; };
    // Has the pool take the memory that was given up, since requests wait for
    // it.
    std::function<void()> grow = [] {};
    // Returns all engines; nullopt while the search for them is running.
    std::function<absl::optional<std::vector<Sight>>()> look = [] {
      return std::vector<Sight>();
    };
    // Has the engine drop its own weights, up to `bytes` in all, and read the
    // lender's; or has it restore them. False if nothing begins.
    std::function<bool(const std::string& engine,
                       const abi::ShareAddress& lender, uint64_t bytes)>
        drop = [](const auto&, const auto&, uint64_t) { return false; };
    std::function<bool(const std::string& engine)> restore = [](const auto&) {
      return false;
    };
  };

  // The daemon's parts that the service uses. The objects that are pointed to
  // must outlive the service.
  struct Daemon {
    AskPool ask_pool;
    std::function<GpuFacts()> ask_gpu;
    const Clock* clock;
    DrainedEngines* drained;
    PlanBoard* plans;
    // Called when requests wait for an engine whose memory may have left the
    // GPU, and again as long as they wait.
    std::function<void(const std::string& engine)> need = [](const auto&) {};
    // Returns where an engine's memory is; nullopt if it cannot leave the GPU.
    std::function<absl::optional<evict::Residence>(const std::string& engine)>
        residence = [](const auto&) { return absl::nullopt; };
    // Lets the engine leave the GPU. False if it is already away or moving.
    std::function<bool(const std::string& engine)> evict = [](const auto&) {
      return false;
    };
    // True if the engine, whose requests another daemon admits, has requests as
    // far as its view here shows.
    std::function<bool(const std::string& engine)> is_busy_elsewhere =
        [](const auto&) { return false; };
    Drops drops = {};
    // Host memory of the engine's processes, in bytes; 0 if unknown.
    std::function<uint64_t(const std::string& engine)> process_bytes =
        [](const auto&) { return 0; };
  };

  // Serves the engines of `fleet` whose gpu is empty or is a prefix of `gpu`,
  // the UUID.
  static absl::StatusOr<std::unique_ptr<AdmissionService>> Create(
      const config::Fleet& fleet, const std::string& gpu, uint64_t epoch,
      Daemon daemon, Send send);

  // Continues the counts of the service that this one replaces, and takes over
  // what it has learnt.
  void CountOnFrom(const AdmissionService& before);
  // The corrections and lengths that were learnt from engines and models.
  // LearnFrom lets a new service continue with what another service learnt
  // about the same engines and models.
  Learnt WhatWasLearnt() const;
  void LearnFrom(const Learnt& before);

  // Handles one message from a peer. A bad message is answered with Refused.
  void Handle(const std::string& peer, absl::string_view bytes);

  // Makes the pending decisions, and forgets peers that are silent. Call it
  // after messages, after changes of the pool, and at the time that NextWakeNs
  // gives.
  void Settle();

  // Lets an idle engine leave the GPU for `asker`, which lacks `lack`
  // (evict::IdleEngines). If no engine is idle and `may_rest` is set, stops new
  // requests to one engine, so that it can leave after its running requests.
  evict::Room MakeRoom(const std::string& asker, evict::Lack lack,
                       bool may_rest);
  // Called when another GPU needs the room that an engine which spans several
  // GPUs has there. Lets the engine leave if it has no requests. Otherwise
  // stops new requests to it for a while, unless it has just come back. False
  // if it does not leave now.
  bool LetGo(const std::string& engine);
  // Lets an idle engine leave, to give other engines the KV that they lack.
  // False if none can leave.
  bool MakeKvRoom();
  // True if an engine has left to make room for others, and may be brought back
  // before its next request.
  bool AnyIsOut() const { return idle_.any_is_out(); }
  // Brings such an engine back if no request waits and if `idle_bytes`, the GPU
  // memory that no engine holds, are enough for it.
  void BringAhead(uint64_t idle_bytes);

  // Its figures for a scrape.
  metrics::AdmissionFigures Measure() const;

  // Sends all proxies a goodbye, so that none waits for this service, and
  // returns them.
  std::set<std::string> SayGoodbye();
  // True if a message shows that its sender knows of the goodbye.
  static bool KnowsOfGoodbye(absl::string_view bytes);

  // Returns the time at which Settle may have work even if nothing happens
  // (CLOCK_MONOTONIC); UINT64_MAX if never.
  uint64_t NextWakeNs() const;

 private:
  // Window over which demand is measured to decide how many replicas are
  // wanted; the second constant is the shortest history that counts.
  // Heuristics: a minute is the planner's default, and an autoscaler looks
  // several times a minute.
  static constexpr double kWindowS = 60;
  static constexpr double kLeastWindowS = 10;
  // Limit on the number of replicas that are counted in addition to those in
  // the fleet file.
  static constexpr uint32_t kMostUnlisted = 64;

  using Engine = ServingEngine;
  // Where an engine's step times and (unless it has a view) its KV per token
  // come from, for the log.
  struct Sources {
    std::string kv, step;
  };
  // Returns each trouble that the proxies and the view show for the engine,
  // with the seconds for which it has been known; negative if that is unknown.
  std::map<std::string, double> TroublesOf(const Engine& engine) const;
  double SecondsSince(uint64_t ns) const;
  using Proxy = ProxyBook::Proxy;

  AdmissionService(const config::Fleet& fleet, const std::string& gpu,
                   uint64_t epoch, Daemon daemon, Send send,
                   std::unique_ptr<sched::Policy> policy);

  template <typename Body>
  void Answer(const std::string& peer, uint64_t request, Body body);
  void Deliver(const std::string& peer, const std::string& bytes);
  void Refuse(const std::string& peer, uint64_t request, std::string why,
              bool ungreeted = false);
  void RefuseUngreeted(const std::string& peer, uint64_t request);

  // `epoch` is the daemon's epoch as the peer knows it.
  void HandleHello(const std::string& peer, uint64_t epoch,
                   const wire::HelloT& hello);
  // Returns "there are a, b", a list of the fleet's engines; only the first
  // ones if there are many.
  std::string SomeEngines() const;
  void HandleDrain(const std::string& peer, uint64_t id,
                   const wire::DrainT& drain);
  // True if a planner moves the engine: the plan names it, or will do so once
  // there is a plan.
  bool IsMoved(const std::string& engine) const;
  // Handles a plan from a leader, which need not have greeted.
  void HandlePlan(const std::string& peer, uint64_t id,
                  const wire::PlanNoticeT& notice);
  void HandleSteer(const std::string& peer, uint64_t id,
                   const wire::SteerT& steer);
  // Handles a message from a proxy that has greeted this daemon.
  void HandleRequest(const std::string& peer, Proxy* from,
                     const wire::MessageT& message);
  void Submit(const std::string& peer, Proxy* from, uint64_t id,
              const wire::SubmitT& submit);
  void Progress(const Proxy& from, const wire::ProgressT& progress);
  void Finish(Proxy* from, uint64_t id, const wire::FinishedT& finished);
  void Adopt(const std::string& peer, Proxy* from,
             const wire::RunningRequestT& running);

  // Forgets all of the proxy's requests, waiting and running.
  void ForgetRequests(Proxy* proxy);
  // Returns the time at which the proxy is forgotten unless it is heard from.
  static uint64_t PatienceEndsNs(const Proxy& proxy) {
    return proxy.lost ? 0 : proxy.heard_ns + kPeerPatienceNs;
  }
  void ForgetSilentProxies();
  // Adds the counts of the demand to the window, once a second.
  void SampleDemand();
  // Sets how many replicas the model's demand requires, if that is known.
  void MeasureWanted(
      sched::ModelId model,
      const std::map<sched::ReplicaId, sched::EngineFigures>& engines,
      metrics::ModelFigures* figures) const;
  // Ends the drains of engines that an autoscaler has since ended, so that
  // these engines get requests when they start again.
  void EndDrains();
  // Sets in the scheduler which engines serve, and how much KV they can be sure
  // of.
  void UpdateEngines();
  void SeeIdle();
  void SeeElsewhere();
  void SeeAll() {
    SeeIdle();
    SeeElsewhere();
  }
  const std::string& NameOf(size_t engine) const {
    return engine < engines_.size() ? engines_[engine].name
                                    : elsewhere_[engine - engines_.size()];
  }
  void LetRestElsewhere();
  void EvictIdle();
  // Has replicas give up weights for KV, or get them back
  // (admission_overload.cc).
  void DropOrRestore();
  void Drop(size_t engine, const overload::KvLoad& load);
  // The equal replica that DropTurns chooses, and how many bytes of its weights
  // are then read in all; nullopt if there is no such replica now.
  struct Lender {
    const Sight* sight;
    uint64_t bytes;
  };
  absl::optional<Lender> LenderFor(size_t engine, const overload::KvLoad& load,
                                   const std::vector<Sight>& sights);
  absl::optional<overload::KvLoad> LoadOf(size_t engine) const;
  overload::Replica AskerOf(size_t engine, const overload::KvLoad& load,
                            uint64_t copy_bytes,
                            const overload::Terms& terms) const;
  void CountPeerReads(const std::vector<EngineKv>& kv);
  double AddedByReadsUs(size_t engine) const;
  double DroppedForS(size_t engine) const;
  evict::IdleEngines::Activity ActivityOf(uint32_t engine) const;
  bool EvictOne(evict::RoomFor reason, const std::string& asker,
                evict::Lack lack);
  bool HasReplicaHere(const Engine& engine) const;
  bool IsForNext(const std::string& engine) const;
  uint64_t SilentSince(const Engine& engine) const;
  // True if every proxy has had time to greet, and each proxy that greeted has
  // listed its requests. Until then, an engine may seem idle although it runs
  // requests.
  bool KnowsWhatRuns() const {
    return daemon_.clock->NowNs() - began_ns_ >= kPeerPatienceNs &&
           proxies_.AllHaveTold();
  }
  // True if it gets new requests.
  bool Takes(const Engine& engine) const {
    return !daemon_.drained->Has(engine.name) &&
           daemon_.plans->newest().LetsIn(engine.name) &&
           proxies_.Serves(engine.name) &&
           !idle_.Rests(EngineIndex(engine.name), Now());
  }
  // Refuses requests for a model whose engines here are all drained or ended by
  // the plan: another daemon may have an engine of that model, and the
  // requests' time is running out.
  void SendAway();
  void BringStarting();
  // True if the engine's memory is on the host.
  bool IsAway(const std::string& engine) const {
    const auto residence = daemon_.residence(engine);
    return residence && residence->away_bytes != 0;
  }
  bool AnyServes(sched::ModelId model) const;
  void Tell(const sched::Decision& decision);
  // Calls back the engines of models that requests wait for, and of the models
  // in `refused`, whose engines would have taken too long to return.
  void CallBack(const std::set<sched::ModelId>& refused);
  // Reports the waits of requests that still wait and whose proxies asked for
  // the report.
  void TellWaits();
  std::unique_ptr<wire::EngineFiguresT> Figures(
      const Engine& engine, const sched::EngineFigures* figures) const;
  wire::WelcomeT Welcome() const;
  wire::ReportT Report() const;
  wire::PlanStateT PlanState() const;
  wire::ModelsT Models() const;
  wire::RequestsT Requests(uint32_t most) const;
  size_t EngineIndex(const std::string& name) const;
  sched::Micros Now() const;

  const uint64_t epoch_;
  const std::string gpu_;  // UUID
  const std::string policy_;
  const Daemon daemon_;
  const uint64_t began_ns_;
  const Send send_;
  std::vector<Engine> engines_;       // by ReplicaId
  std::vector<Sources> sources_;      // by engine
  std::set<std::string> on_request_;  // engines here that fsctl up starts so
  std::set<std::string> scaled_;      // engines here that an autoscaler starts
  std::map<sched::ModelId, uint32_t> listed_;  // engines in the fleet, by model
  std::set<std::string> planned_;  // engines here that are places of a planner
  std::map<std::string, uint64_t> view_token_bytes_;  // by engine with a view
  // Indexed by engine; nullopt if the engine has no view now.
  std::vector<absl::optional<bool>> uses_kv_;
  std::map<std::string, sched::ModelId> models_;
  sched::LocalScheduler scheduler_;
  ProxyBook proxies_;
  DemandTotals demand_;
  DemandWindow window_{kWindowS};  // samples demand_
  uint64_t sampled_ns_ = 0;        // demand_, last
  // Engines whose requests other daemons admit. If they have ranks here, they
  // too may leave this GPU.
  const std::vector<std::string> elsewhere_;
  uint64_t saw_elsewhere_ns_ = 0;
  evict::IdleEngines idle_;  // of engines_, then of elsewhere_
  std::map<std::string, sched::ModelId> model_of_;  // by engine, of all GPUs
  overload::DropTurns drops_;                       // of engines_
  std::vector<EngineKv> kv_;               // of engines_, as the pool said last
  std::vector<uint64_t> peer_read_bytes_;  // of engines_, at least
  uint64_t drop_turn_ns_ = 0;              // the next one
  // Requests submitted since the last Settle whose waits are to be reported.
  std::vector<sched::RequestId> tell_waits_;
};

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ADMISSION_SERVICE_H_
