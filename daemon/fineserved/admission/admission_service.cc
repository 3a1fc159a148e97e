#include "daemon/fineserved/admission/admission_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/verdict_codes.h"
#include "daemon/scheduling/local/policy/make_policy.h"

namespace fineserve::admission {

using sched::Micros;
using sched::ModelId;
using sched::Number;
using sched::ReplicaId;
using sched::RequestId;

namespace {

sched::Profile ProfileOf(const config::FleetModel& m) {
  if (m.profile) {
    return {m.profile->base_us, m.profile->per_token_us,
            m.profile->per_sequence_us};
  }
  return sched::kGuess;
}

std::string StepSource(const config::FleetModel& m) {
  if (!m.profile_path.empty()) {
    return absl::StrCat("from the profile ", m.profile_path);
  }
  return m.profile ? "from the fleet file"
                   : "learnt while serving: a guess that first tokens correct";
}

std::string KvSource(const config::FleetModel& m) {
  if (m.kv_token_bytes == 0) return "unknown: its batch alone limits it";
  return m.kv_bytes_from_profile
             ? absl::StrCat("from the profile ", m.profile_path)
             : "from the fleet file";
}

std::vector<sched::ModelSpec> Specs(const config::Fleet& fleet) {
  std::vector<sched::ModelSpec> specs;
  for (const config::FleetModel& m : fleet.models) {
    specs.push_back({m.name, Micros{m.slo_ttft_ms} * 1000,
                     Micros{m.slo_tpot_ms} * 1000, m.chunk_tokens, m.max_batch,
                     ProfileOf(m)});
  }
  return specs;
}

std::vector<std::string> Names(const config::Fleet& fleet) {
  std::vector<std::string> names;
  for (const config::FleetModel& m : fleet.models) names.push_back(m.name);
  return names;
}

// Returns the evictable engines whose requests another daemon admits.
std::vector<std::string> EvictableElsewhere(const config::Fleet& fleet,
                                            const std::string& gpu) {
  std::vector<std::string> names;
  for (const config::FleetEngine& e : fleet.engines) {
    if (!finding::MeansGpu(e.gpu, gpu) && e.may_evict) names.push_back(e.name);
  }
  return names;
}

std::vector<evict::IdleEngines::Rules> RulesOf(
    const config::Fleet& fleet, const std::string& gpu,
    const std::vector<std::string>& elsewhere) {
  std::vector<evict::IdleEngines::Rules> rules;
  const auto add = [&](const config::FleetEngine& e, uint32_t evict_after_s) {
    const config::FleetModel& m = fleet.models[fleet.ModelIndex(e.model)];
    rules.push_back({e.name, e.model, e.may_evict,
                     Micros{evict_after_s} * 1'000'000,
                     Micros{m.slo_ttft_ms} * 1000});
  };
  for (const config::FleetEngine& e : fleet.engines) {
    if (finding::MeansGpu(e.gpu, gpu)) add(e, e.evict_after_s);
  }
  for (const std::string& name : elsewhere) add(*fleet.Engine(name), 0);
  return rules;
}

overload::DropRules RulesOf(const config::OverloadSettings& settings) {
  constexpr double kBytesPerUs = 1e3;  // in 10^9 bytes/s
  return {settings.IsOn(), settings.link_gb_s * kBytesPerUs,
          static_cast<double>(settings.rereads)};
}

std::vector<std::string> NamesHere(const config::Fleet& fleet,
                                   const std::string& gpu) {
  std::vector<std::string> names;
  for (const config::FleetEngine& e : fleet.engines) {
    if (finding::MeansGpu(e.gpu, gpu)) names.push_back(e.name);
  }
  return names;
}

uint32_t Milliseconds(Micros us) {
  return static_cast<uint32_t>(
      std::clamp<Micros>(us / 1000, 0, Micros{UINT32_MAX}));
}

std::string Why(const sched::Decision& decision) {
  const absl::string_view why = verdict::TextOf(decision.refusal).why;
  if (decision.refusal != sched::Refusal::kDeadline) return std::string(why);
  return absl::StrCat(why, ": predicted ", decision.predicted_ttft / 1000,
                      " ms until its first token");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdmissionService>> AdmissionService::Create(
    const config::Fleet& fleet, const std::string& gpu, uint64_t epoch,
    Daemon daemon, Send send) {
  absl::StatusOr<std::unique_ptr<sched::Policy>> policy =
      sched::MakePolicy(fleet.policy, sched::kDefaultFloorShare);
  if (!policy.ok()) return policy.status();
  return std::unique_ptr<AdmissionService>(
      new AdmissionService(fleet, gpu, epoch, std::move(daemon),
                           std::move(send), *std::move(policy)));
}

AdmissionService::AdmissionService(const config::Fleet& fleet,
                                   const std::string& gpu, uint64_t epoch,
                                   Daemon daemon, Send send,
                                   std::unique_ptr<sched::Policy> policy)
    : epoch_(epoch),
      gpu_(gpu),
      policy_(fleet.policy),
      daemon_(std::move(daemon)),
      began_ns_(daemon_.clock->NowNs()),
      send_(std::move(send)),
      scheduler_(Specs(fleet), std::move(policy)),
      demand_(Names(fleet)),
      elsewhere_(EvictableElsewhere(fleet, gpu)),
      idle_(*evict::EvictionPolicyNamed(fleet.eviction_policy),
            RulesOf(fleet, gpu, elsewhere_)),
      drops_(RulesOf(fleet.overload), NamesHere(fleet, gpu), Now()) {
  scheduler_.SetUpdateRooms([this] { UpdateEngines(); });
  for (size_t m = 0; m < fleet.models.size(); ++m) {
    models_[fleet.models[m].name] = ModelId{static_cast<uint32_t>(m)};
  }
  for (const config::FleetEngine& e : fleet.engines) {
    ++listed_[models_.at(e.model)];
    model_of_[e.name] = models_.at(e.model);
    if (!finding::MeansGpu(e.gpu, gpu)) continue;
    const config::FleetModel& m = fleet.models[fleet.ModelIndex(e.model)];
    engines_.push_back({e.name, models_.at(e.model),
                        m.kv_token_bytes / e.Gpus().size(), m.block_tokens,
                        m.max_batch});
    sources_.push_back({KvSource(m), StepSource(m)});
    if (e.on_request) on_request_.insert(e.name);
    if (e.is_scaled) scaled_.insert(e.name);
    if (fleet.planner.on && e.is_place) planned_.insert(e.name);
  }
  uses_kv_.resize(engines_.size());
  kv_.resize(engines_.size());
  peer_read_bytes_.resize(engines_.size());
}

Micros AdmissionService::Now() const {
  return static_cast<Micros>(daemon_.clock->NowNs() / 1000);
}

template <typename Body>
void AdmissionService::Answer(const std::string& peer, uint64_t request,
                              Body body) {
  Deliver(peer, wire::Encode(epoch_, request, std::move(body)));
}

void AdmissionService::Deliver(const std::string& peer,
                               const std::string& bytes) {
  if (send_(peer, bytes)) return;
  Proxy* proxy = proxies_.Find(peer);
  if (proxy != nullptr) proxy->lost = true;
}

void AdmissionService::Refuse(const std::string& peer, uint64_t request,
                              std::string why, bool ungreeted) {
  wire::RefusedT refused;
  refused.why = std::move(why);
  refused.ungreeted = ungreeted;
  Answer(peer, request, std::move(refused));
}

void AdmissionService::RefuseUngreeted(const std::string& peer,
                                       uint64_t request) {
  Refuse(peer, request,
         "the sender has not greeted this daemon, which may be a new one",
         /*ungreeted=*/true);
}

void AdmissionService::Handle(const std::string& peer,
                              absl::string_view bytes) {
  const absl::StatusOr<wire::MessageT> message = wire::Decode(bytes);
  if (!message.ok()) {
    log::Warning("admission: refusing a message: {}",
                 std::string(message.status().message()));
    Refuse(peer, 0, std::string(message.status().message()));
    return;
  }
  const wire::BodyUnion& body = message->body;
  if (const wire::HelloT* hello = body.AsHello()) {
    HandleHello(peer, message->epoch, *hello);
  } else if (body.AsModelsQuery() != nullptr) {
    Answer(peer, message->request, Models());
  } else if (const auto* query = body.AsRequestsQuery()) {
    Answer(peer, message->request, Requests(query->most));
  } else if (const wire::DrainT* drain = body.AsDrain()) {
    HandleDrain(peer, message->request, *drain);
  } else if (const wire::PlanNoticeT* notice = body.AsPlanNotice()) {
    HandlePlan(peer, message->request, *notice);
  } else if (body.AsPlanQuery() != nullptr) {
    Answer(peer, message->request, PlanState());
  } else if (const wire::SteerT* steer = body.AsSteer()) {
    HandleSteer(peer, message->request, *steer);
  } else {
    Proxy* from = proxies_.Find(peer);
    if (from == nullptr || message->epoch != epoch_) {
      RefuseUngreeted(peer, message->request);
      return;
    }
    HandleRequest(peer, from, *message);
  }
}

void AdmissionService::HandleHello(const std::string& peer, uint64_t epoch,
                                   const wire::HelloT& hello) {
  // A peer that knows this epoch without `reset` believes that its requests are
  // known here. If they were forgotten, a Welcome would confirm that belief.
  if (epoch == epoch_ && !hello.reset && !proxies_.Has(peer)) {
    RefuseUngreeted(peer, 0);
    return;
  }
  const bool is_new = !proxies_.Has(peer);
  Proxy* from = proxies_.Greet(peer, hello, daemon_.clock->NowNs());
  demand_.Count(peer, hello);
  UpdateEngines();
  // A proxy that knows no epoch has let requests run without this daemon.
  if (hello.reset || epoch != epoch_) from->has_told = hello.reset;
  if (hello.reset) ForgetRequests(from);
  for (const auto& running : hello.running) Adopt(peer, from, *running);
  if (is_new) log::Info("admission: a proxy has connected");
  Answer(peer, 0, Welcome());
}

std::string AdmissionService::SomeEngines() const {
  constexpr size_t kMostNamed = 8;
  std::vector<absl::string_view> names;
  for (const Engine& engine : engines_) {
    if (names.size() == kMostNamed) {
      names.push_back("others");
      break;
    }
    names.push_back(engine.name);
  }
  return absl::StrCat("there are ", absl::StrJoin(names, ", "));
}

void AdmissionService::HandleDrain(const std::string& peer, uint64_t id,
                                   const wire::DrainT& drain) {
  std::vector<std::string> engines;
  for (const Engine& engine : engines_) {
    if (drain.engine.empty() || engine.name == drain.engine) {
      engines.push_back(engine.name);
    }
  }
  if (engines.empty() && !drain.engine.empty()) {
    Refuse(peer, id,
           absl::StrCat("no engine \"", drain.engine, "\"; ", SomeEngines()));
    return;
  }
  const bool empties = drain.engine.empty() && drain.on && drain.moves;
  if (empties) {
    std::erase_if(
        engines, [this](const std::string& engine) { return IsMoved(engine); });
  }
  const absl::Status s = empties ? daemon_.drained->Empty(engines)
                                 : daemon_.drained->Set(engines, drain.on);
  if (!s.ok()) {
    Refuse(peer, id, std::string(s.message()));
    return;
  }
  if (empties) log::Info("admission: this GPU drains; its models move away");
  for (const std::string& engine : engines) {
    log::Info("admission: engine {} {}", engine,
              drain.on ? "drains" : "takes requests again");
  }
  Answer(peer, id, wire::DoneT());
}

bool AdmissionService::IsMoved(const std::string& engine) const {
  const wire::NewestPlan& plan = daemon_.plans->newest();
  return plan.plan() == nullptr ? planned_.count(engine) > 0
                                : plan.Place(engine) != nullptr;
}

size_t AdmissionService::EngineIndex(const std::string& name) const {
  return std::find_if(engines_.begin(), engines_.end(),
                      [&](const Engine& e) { return e.name == name; }) -
         engines_.begin();
}

// Returns the time since which the engine has not served: the time at which the
// last proxy lost it. The proxies know better than this daemon, which may have
// started later.
uint64_t AdmissionService::SilentSince(const Engine& engine) const {
  uint64_t lost_ns = proxies_.SilentSince(engine.name);
  if (lost_ns == 0) lost_ns = daemon_.clock->NowNs();
  return engine.silent_ns == 0 ? lost_ns : std::min(engine.silent_ns, lost_ns);
}

void AdmissionService::UpdateEngines() {
  std::vector<size_t> began;
  for (size_t i = 0; i < engines_.size(); ++i) {
    Engine& engine = engines_[i];
    const bool serves = proxies_.Serves(engine.name);
    if (!engine.known && serves) {
      engine.known = true;
      began.push_back(i);
    }
    if (serves) {
      engine.silent_ns = 0;
    } else {
      engine.silent_ns = SilentSince(engine);
    }
    engine.takes = Takes(engine);
  }
  const auto ask = [this](const std::vector<EngineNeed>& needs) {
    std::vector<EngineKv> kv = daemon_.ask_pool(needs);
    for (EngineKv& one : kv) {
      one.peer =
          drops_.rules().ReadsOf(one.dropped.bytes, one.dropped.of_bytes);
    }
    return kv;
  };
  const std::vector<EngineKv> kv = SetRooms(engines_, ask, &scheduler_);
  CountPeerReads(kv);
  for (size_t i = 0; i < kv.size(); ++i) {
    uses_kv_[i].reset();
    if (kv[i].view) uses_kv_[i] = kv[i].view->used_tokens != 0;
    const uint64_t bytes = kv[i].view ? kv[i].view->token_bytes : 0;
    if (bytes != 0) view_token_bytes_[engines_[i].name] = bytes;
  }
  for (const size_t i : began) {
    log::Info("admission: engine {}: KV per token {}; step times {}",
              engines_[i].name,
              kv[i].view ? "from its registered format" : sources_[i].kv,
              sources_[i].step);
  }
  kv_ = kv;
}

void AdmissionService::SeeIdle() {
  if (!idle_.any()) return;  // without a look at the scheduler's books
  for (uint32_t i = 0; i < engines_.size(); ++i) {
    const std::string& name = engines_[i].name;
    auto residence = daemon_.residence(name);
    const wire::NewestPlan& plan = daemon_.plans->newest();
    // An engine that the plan ends needs no copy on the host.
    if (residence) residence->is_off = plan.IsOff(name) && plan.MayRest(name);
    idle_.Saw(i, ActivityOf(i), Now(), residence);
  }
}

void AdmissionService::SeeElsewhere() {
  saw_elsewhere_ns_ = daemon_.clock->NowNs();
  for (size_t i = 0; i < elsewhere_.size(); ++i) {
    using Activity = evict::IdleEngines::Activity;
    const auto residence = daemon_.residence(elsewhere_[i]);
    Activity activity = Activity::kAway;
    if (residence) {
      activity = daemon_.is_busy_elsewhere(elsewhere_[i]) ? Activity::kBusy
                                                          : Activity::kIdle;
    }
    idle_.Saw(engines_.size() + i, activity, Now(), residence);
  }
}

void AdmissionService::EvictIdle() {
  SeeIdle();
  if (daemon_.clock->NowNs() - saw_elsewhere_ns_ >= kHelloNs) SeeElsewhere();
  for (const size_t i : idle_.Due(Now())) daemon_.evict(engines_[i].name);
}

// An engine that does not serve yet is not idle. Without a proxy, an engine
// whose view has no KV in use counts as idle; its own process decides whether
// it leaves.
evict::IdleEngines::Activity AdmissionService::ActivityOf(
    uint32_t engine) const {
  using Activity = evict::IdleEngines::Activity;
  if (proxies_.empty() && KnowsWhatRuns()) {
    const absl::optional<bool> uses_kv = uses_kv_[engine];
    if (!uses_kv) return Activity::kAway;
    return *uses_kv ? Activity::kBusy : Activity::kIdle;
  }
  const auto work = scheduler_.WorkOf(ReplicaId{engine});
  if (!work || engines_[engine].silent_ns != 0) return Activity::kAway;
  const bool waits = work->queue_tokens != 0 && !idle_.Rests(engine, Now());
  return work->running != 0 || waits ? Activity::kBusy : Activity::kIdle;
}

// True if the engine is off the GPU, a proxy says that it serves, and no
// request, operator or plan waits for it: memory for it would be for its next
// request only. An engine on the GPU asks for memory for requests that run.
bool AdmissionService::IsForNext(const std::string& engine) const {
  const size_t i = EngineIndex(engine);
  if (i == engines_.size() || !engines_[i].known || !proxies_.Serves(engine)) {
    return false;
  }
  const auto residence = daemon_.residence(engine);
  return residence && residence->away_bytes != 0 && !residence->is_ordered &&
         !daemon_.plans->newest().Starts(engine) &&
         scheduler_.Figures(engines_[i].model).queued == 0;
}

bool AdmissionService::EvictOne(evict::RoomFor reason, const std::string& asker,
                                evict::Lack lack) {
  const auto leaves = idle_.WhoLeaves(reason, asker, lack, Now());
  if (!leaves || !daemon_.evict(NameOf(*leaves))) return false;
  idle_.LeavesForOthers(*leaves);
  return true;
}

evict::Room AdmissionService::MakeRoom(const std::string& asker,
                                       evict::Lack lack, bool may_rest) {
  using evict::Room;
  if (!idle_.any()) return Room::kNone;
  SeeAll();
  const bool is_for_next = IsForNext(asker);
  const auto reason = !proxies_.Serves(asker) ? evict::RoomFor::kStart
                      : is_for_next           ? evict::RoomFor::kNext
                                              : evict::RoomFor::kRequests;
  if (EvictOne(reason, asker, lack)) return Room::kComes;
  if (is_for_next) return Room::kNotForNext;
  if (!may_rest) return Room::kNone;
  // At first it is not known which engines are idle.
  const bool comes = idle_.LetOneRest(asker, lack, Now()) || !KnowsWhatRuns();
  LetRestElsewhere();
  return comes ? Room::kComes : Room::kNone;
}

// Asks the daemon that admits the resting engine's requests to let the engine
// rest and leave.
void AdmissionService::LetRestElsewhere() {
  const auto rests = idle_.WhoRests(Now());
  if (rests && *rests >= engines_.size()) daemon_.evict(NameOf(*rests));
}

// An engine without requests here is asked to leave; its processes decide
// whether it does.
bool AdmissionService::LetGo(const std::string& engine) {
  SeeAll();
  const size_t i = EngineIndex(engine);
  if (i == engines_.size() || idle_.IsIdle(i)) return daemon_.evict(engine);
  idle_.LetRest(i, Now());
  return false;
}

bool AdmissionService::MakeKvRoom() {
  SeeAll();
  return EvictOne(evict::RoomFor::kKv, "", 0);
}

void AdmissionService::BringAhead(uint64_t idle_bytes) {
  for (const Engine& engine : engines_) {
    if (scheduler_.Figures(engine.model).queued != 0) return;
  }
  SeeIdle();
  const auto takes = [this](size_t engine) { return engines_[engine].takes; };
  const auto comes = idle_.BringAhead(idle_bytes, takes, Now());
  if (comes) daemon_.need(engines_[*comes].name);
}

void AdmissionService::ForgetRequests(Proxy* proxy) {
  for (const RequestId id : proxies_.ForgetAll(proxy)) scheduler_.Cancel(id);
}

void AdmissionService::ForgetSilentProxies() {
  const uint64_t now = daemon_.clock->NowNs();
  std::vector<std::string> silent;
  for (const auto& [peer, proxy] : proxies_.all()) {
    if (now >= PatienceEndsNs(proxy)) silent.push_back(peer);
  }
  for (const std::string& peer : silent) {
    Proxy* proxy = proxies_.Find(peer);
    log::Warning(
        "admission: a proxy {}; forgetting its {} requests",
        proxy->lost ? "does not take what it is sent" : "has stopped sending",
        proxy->requests.size());
    ForgetRequests(proxy);
    demand_.Forget(peer);
    proxies_.Drop(peer);
  }
}

void AdmissionService::SampleDemand() {
  const uint64_t now = daemon_.clock->NowNs();
  if (proxies_.empty() || now - sampled_ns_ < kHelloNs) return;
  sampled_ns_ = now;
  window_.Add(gpu_, now, demand_.Known());
}

void AdmissionService::EndDrains() {
  if (proxies_.empty()) return;  // which may say that it serves
  const uint64_t now = daemon_.clock->NowNs();
  std::vector<std::string> gone;
  for (const Engine& engine : engines_) {
    const bool is_away =
        engine.silent_ns != 0 && now - engine.silent_ns >= kPeerPatienceNs;
    if (is_away && scaled_.count(engine.name) != 0 &&
        daemon_.drained->Has(engine.name)) {
      gone.push_back(engine.name);
    }
  }
  if (gone.empty() || !daemon_.drained->Set(gone, false).ok()) return;
  for (const std::string& engine : gone) {
    log::Info("admission: engine {} has ended, and its drain with it", engine);
  }
}

void AdmissionService::Settle() {
  ForgetSilentProxies();
  SampleDemand();
  UpdateEngines();
  EndDrains();
  SendAway();
  EvictIdle();  // before Decide: a request that it refuses at once counts, too
  std::set<ModelId> late;
  for (const sched::Decision& decision : scheduler_.Decide(Now())) {
    const ProxyBook::Origin* origin = proxies_.FindOrigin(decision.id);
    if (origin != nullptr && !decision.engine &&
        decision.refusal == sched::Refusal::kDeadline) {
      late.insert(origin->model);
    }
    Tell(decision);
  }
  TellWaits();
  CallBack(late);
  DropOrRestore();
}

bool AdmissionService::HasReplicaHere(const Engine& engine) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
    if (e.model != engine.model || e.name == engine.name || !e.takes) {
      return false;
    }
    const auto residence = daemon_.residence(e.name);
    return !residence || residence->bytes != 0;
  });
}

void AdmissionService::CallBack(const std::set<ModelId>& refused) {
  for (const Engine& engine : engines_) {
    if (!engine.takes) continue;
    const bool is_needed = refused.count(engine.model) != 0 ||
                           scheduler_.Figures(engine.model).queued != 0;
    if (is_needed && !HasReplicaHere(engine)) daemon_.need(engine.name);
  }
}

void AdmissionService::TellWaits() {
  for (const RequestId id : std::exchange(tell_waits_, {})) {
    const ProxyBook::Origin* origin = proxies_.FindOrigin(id);
    const auto opening = scheduler_.OpeningFor(id, Now());
    if (origin == nullptr || !opening) continue;
    wire::WaitsT waits;
    waits.start_us = static_cast<uint64_t>(opening->in);
    Answer(origin->peer, origin->request, std::move(waits));
  }
}

bool AdmissionService::AnyServes(ModelId model) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
    return e.model == model && proxies_.Serves(e.name);
  });
}

void AdmissionService::Tell(const sched::Decision& reported) {
  const ProxyBook::Origin* origin = proxies_.FindOrigin(reported.id);
  if (origin == nullptr) return;
  sched::Decision decision = reported;
  // The request waited for an engine to come back, not because of the load.
  const Micros waited = Now() - origin->since;
  if (!AnyServes(origin->model)) {
    decision.refusal = sched::Refusal::kNoEngine;
    decision.predicted_ttft = 0;
    if (waited > 0) decision.waited_for = verdict::WaitedFor::kEngine;
  }
  wire::VerdictT verdict;
  verdict.admitted = decision.engine.has_value();
  verdict.degraded = decision.degraded;
  verdict.predicted_ttft_ms = Milliseconds(decision.predicted_ttft);
  verdict.waited_for = wire::CodeOf(decision.waited_for);
  verdict.waited_us = static_cast<uint64_t>(std::max<Micros>(waited, 0));
  if (decision.engine) {
    verdict.engine = engines_[Number(*decision.engine)].name;
  } else {
    verdict.refusal = wire::CodeOf(decision.refusal);
    verdict.why = Why(decision);
    verdict.retry_after_ms = Milliseconds(decision.retry_after);
  }
  Answer(origin->peer, origin->request, std::move(verdict));
  if (!decision.engine) proxies_.Forget(decision.id);
}

std::set<std::string> AdmissionService::SayGoodbye() {
  std::set<std::string> reported;
  for (const auto& [peer, known] : proxies_.all()) {
    Answer(peer, 0, wire::GoodbyeT());
    if (!known.lost) reported.insert(peer);
  }
  return reported;
}

bool AdmissionService::KnowsOfGoodbye(absl::string_view bytes) {
  const absl::StatusOr<wire::MessageT> message = wire::Decode(bytes);
  return message.ok() && message->epoch == 0 &&
         message->body.AsHello() != nullptr;
}

uint64_t AdmissionService::NextWakeNs() const {
  uint64_t wake = UINT64_MAX;
  for (const auto& [peer, proxy] : proxies_.all()) {
    wake = std::min(wake, PatienceEndsNs(proxy));
  }
  const Micros next = std::min(scheduler_.NextWake(Now()),
                               idle_.RestEnds(Now()).value_or(sched::kNever));
  if (drops_.waits()) wake = std::min(wake, drop_turn_ns_);
  if (next == sched::kNever) return wake;
  return std::min(wake,
                  static_cast<uint64_t>(std::max<Micros>(next, 0)) * 1000);
}

}  // namespace fineserve::admission
