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
  // Interval at which proxies greet.
  static constexpr uint64_t kHelloNs = 1'000'000'000;

  // Sends to a peer; false if it is gone.
  using Send =
      std::function<bool(const std::string& peer, absl::string_view bytes)>;

  // An engine of this machine that may be a replica.
  struct Sight : finding::EngineSight {
    bool in_reach =
        false;  // on this GPU, or on one whose memory this GPU can read
  };
  // Hooks by which replicas give weights for KV (design note 0047).
  struct Drops {
    // Reason why given-up memory would not become KV, of which `short_bytes`
    // are lacking; kDrops if it would.
    std::function<overload::Why(uint64_t short_bytes)> would_grow =
        [](uint64_t) { return overload::Why::kFixedPool; };
    // Has the pool take the memory that was given up, since requests wait for
    // it.
    std::function<void()> grow = [] {};
    // All engines; nullopt while the search for them runs.
    std::function<absl::optional<std::vector<Sight>>()> look = [] {
      return std::vector<Sight>();
    };
    // The engine reads the lender's weights and drops its own, up to `bytes` in
    // all; or gets them back. False if nothing begins.
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
    // Requests wait for an engine whose memory may have left the GPU. Called
    // again as long as they do.
    std::function<void(const std::string& engine)> need = [](const auto&) {};
    // Where the memory of an engine is; nullopt if it cannot leave the GPU.
    std::function<absl::optional<evict::Residence>(const std::string& engine)>
        residence = [](const auto&) { return absl::nullopt; };
    // Lets the engine leave the GPU. False if it is away already, or moves.
    std::function<bool(const std::string& engine)> evict = [](const auto&) {
      return false;
    };
    // True if an engine whose requests another daemon admits has some, as far
    // as its view here shows.
    std::function<bool(const std::string& engine)> is_busy_elsewhere =
        [](const auto&) { return false; };
    Drops drops = {};
    // Host memory of the engine's processes; 0: not known.
    std::function<uint64_t(const std::string& engine)> process_bytes =
        [](const auto&) { return 0; };
  };

  // The engines of `fleet` whose gpu is empty or begins `gpu`, the UUID.
  static absl::StatusOr<std::unique_ptr<AdmissionService>> Create(
      const config::Fleet& fleet, const std::string& gpu, uint64_t epoch,
      Daemon daemon, Send send);

  // Goes on with the counts of the service that this one replaces, and with
  // what it learnt.
  void CountOnFrom(const AdmissionService& before);
  // Corrections and lengths that engines and models have taught. LearnFrom lets
  // a service that has just begun go on with what another one learnt about the
  // same engines and models.
  Learnt WhatWasLearnt() const;
  void LearnFrom(const Learnt& before);

  // Handles one message from a peer. A bad message is answered with Refused.
  void Handle(const std::string& peer, absl::string_view bytes);

  // Decides, and forgets peers that are silent. Call after messages, after
  // changes of the pool, and at the time that NextWakeNs gives.
  void Settle();

  // Lets an idle engine leave the GPU for `asker`, which lacks `lack`
  // (evict::IdleEngines). If none is idle and `may_rest` is set, one engine
  // gets no new requests, so that it can leave once its running ones are
  // answered.
  evict::Room MakeRoom(const std::string& asker, evict::Lack lack,
                       bool may_rest);
  // Another GPU of an engine that spans several needs the engine's room there.
  // Lets the engine leave if it has no requests. Otherwise it gets no new ones
  // for a while, unless it has just come. False if it does not leave now.
  bool LetGo(const std::string& engine);
  // Lets an idle engine leave for KV that others lack. False if none can.
  bool MakeKvRoom();
  // True if an engine has left for others, and may come back ahead of its next
  // request.
  bool AnyIsOut() const { return idle_.any_is_out(); }
  // Brings such an engine back if no request waits, and `idle_bytes`, which no
  // engine holds on the GPU, are enough for it.
  void BringAhead(uint64_t idle_bytes);

  // Its figures for a scrape.
  metrics::AdmissionFigures Measure() const;

  // Tells all proxies that this service ends, so that none waits for it, and
  // returns them.
  std::set<std::string> SayGoodbye();
  // True if a message shows that its sender knows of the goodbye.
  static bool KnowsOfGoodbye(absl::string_view bytes);

  // Time at which Settle may have something to do even if nothing happens
  // (CLOCK_MONOTONIC); UINT64_MAX if never.
  uint64_t NextWakeNs() const;

 private:
  // Window over which the demand that decides how many replicas are wanted is
  // measured; the second constant is the shortest history that counts.
  // Heuristics: a minute is the planner's default, and an autoscaler looks
  // several times in it.
  static constexpr double kWindowS = 60;
  static constexpr double kLeastWindowS = 10;
  // Limit on the replicas that are counted beyond those in the fleet file.
  static constexpr uint32_t kMostUnlisted = 64;

  using Engine = ServingEngine;
  // Where an engine's KV per token (unless it has a view) and its step times
  // come from, for the log.
  struct Sources {
    std::string kv, step;
  };
  // Every trouble of the engine that its proxies and its view show, and the
  // seconds for which it has been known; negative if that is unknown.
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

  // `epoch`: of the daemon, as the peer knows it.
  void HandleHello(const std::string& peer, uint64_t epoch,
                   const wire::HelloT& hello);
  // "there are a, b", of the fleet's; only the first ones of many.
  std::string SomeEngines() const;
  void HandleDrain(const std::string& peer, uint64_t id,
                   const wire::DrainT& drain);
  // True if a planner moves the engine: the plan names it, or will once there
  // is one.
  bool IsMoved(const std::string& engine) const;
  // From a leader, which need not have greeted.
  void HandlePlan(const std::string& peer, uint64_t id,
                  const wire::PlanNoticeT& notice);
  void HandleSteer(const std::string& peer, uint64_t id,
                   const wire::SteerT& steer);
  // A message from a proxy that has greeted this daemon.
  void HandleRequest(const std::string& peer, Proxy* from,
                     const wire::MessageT& message);
  void Submit(const std::string& peer, Proxy* from, uint64_t id,
              const wire::SubmitT& submit);
  void Progress(const Proxy& from, const wire::ProgressT& progress);
  void Finish(Proxy* from, uint64_t id, const wire::FinishedT& finished);
  void Adopt(const std::string& peer, Proxy* from,
             const wire::RunningRequestT& running);

  // All of the proxy's requests, waiting and running.
  void ForgetRequests(Proxy* proxy);
  // Time at which the proxy is forgotten unless it is heard.
  static uint64_t PatienceEndsNs(const Proxy& proxy) {
    return proxy.lost ? 0 : proxy.heard_ns + kPeerPatienceNs;
  }
  void ForgetSilentProxies();
  // Puts the counts of the demand into the window, once a second.
  void SampleDemand();
  // Sets how many replicas of the model its demand wants, if that is known.
  void MeasureWanted(
      sched::ModelId model,
      const std::map<sched::ReplicaId, sched::EngineFigures>& engines,
      metrics::ModelFigures* figures) const;
  // Ends the drains of engines that an autoscaler has ended since, so that
  // their next lives get requests.
  void EndDrains();
  // Tells the scheduler which engines serve, and what KV they can be sure of.
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
  // Replicas give weights for KV, and get them back (admission_overload.cc).
  void DropOrRestore();
  void Drop(size_t engine, const overload::KvLoad& load);
  // The equal replica that DropTurns chooses, and how much of its copy is then
  // read in all; nullopt if there is none now.
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
  // True if every proxy has had the time to greet, and each that did has listed
  // its requests. Until then an engine may seem idle while it runs some.
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
  // the plan: it may have one elsewhere, and their time runs.
  void SendAway();
  void BringStarting();
  // True if the engine's memory is on the host.
  bool IsAway(const std::string& engine) const {
    const auto residence = daemon_.residence(engine);
    return residence && residence->away_bytes != 0;
  }
  bool AnyServes(sched::ModelId model) const;
  void Tell(const sched::Decision& decision);
  // Engines of models that requests wait for, and of those of `refused`, for
  // which the way back would have been too long.
  void CallBack(const std::set<sched::ModelId>& refused);
  // Reports the waits of requests whose proxies asked for it, if they still
  // wait.
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
  // By engine; nullopt: it has no view now.
  std::vector<absl::optional<bool>> uses_kv_;
  std::map<std::string, sched::ModelId> models_;
  sched::LocalScheduler scheduler_;
  ProxyBook proxies_;
  DemandTotals demand_;
  DemandWindow window_{kWindowS};  // samples demand_
  uint64_t sampled_ns_ = 0;        // demand_, last
  // Engines whose requests other daemons admit. If they have ranks here, they
  // may leave this GPU, too.
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
