#include "tools/lab/sim/gpu/gpu.h"

#include "daemon/fineserved/admission/rooms/kv_in_pool.h"
#include "kernels/driver/rounding.h"

namespace fineserve::sim {
namespace {

using sched::ModelId;
using sched::Number;
using sched::ReplicaId;
using sched::RequestId;

// Interval at which an engine without a free block tries again (tinyserve's
// kRetry).
constexpr Micros kRetryUs = 50'000;

}  // namespace

Gpu::Gpu(const GpuSetup& setup, std::unique_ptr<sched::Policy> policy)
    : setup_(setup), scheduler_(setup.models, std::move(policy)) {
  if (setup.geometry.slab_count > 0) {
    pool_ = std::make_unique<slab::PoolState>(setup.geometry,
                                              setup.geometry.slab_count);
  }
  if (setup.eviction) PlaceAtStart();
  scheduler_.SetUpdateRooms([this] { SetRooms(); });
  ask_ = [this](const std::vector<admission::EngineNeed>& needs) {
    std::vector<admission::EngineKv> kv(needs.size());
    if (pool_ != nullptr) {
      kv = admission::KvInPool(*pool_, /*uid=*/0, needs,
                               [this](slab::EngineId id, slab::SlabId slab) {
                                 return UsedBlocks(id, slab);
                               });
    }
    for (size_t i = 0; i < engines_.size(); ++i) {
      const EngineSetup& engine = engines_[i]->setup;
      kv[i].back_in = BackIn(*engines_[i]);
      if (engine.own_tokens == 0) continue;
      kv[i].leased_bytes = engine.own_tokens * engine.kv_token_bytes;
    }
    return kv;
  };
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Create(const GpuSetup& setup) {
  absl::StatusOr<std::unique_ptr<sched::Policy>> policy =
      setup.make_policy ? setup.make_policy()
                        : sched::MakePolicy(setup.policy, setup.floor_share);
  if (!policy.ok()) return policy.status();
  std::unique_ptr<Gpu> gpu(new Gpu(setup, *std::move(policy)));
  if (gpu->pool_ != nullptr) gpu->FillAtStart();
  for (const EngineSetup& engine : setup.engines) {
    gpu->AddEngine(engine);
    if (!engine.runs) continue;
    const absl::Status s = gpu->Begin(gpu->engines_.back().get());
    if (!s.ok()) return s;
    gpu->Stay(gpu->engines_.back().get());
  }
  gpu->LeaseFloors();
  gpu->SetRooms();
  return gpu;
}

void Gpu::AddEngine(const EngineSetup& setup) {
  const uint32_t slabs = setup.own_tokens > 0 ? 1 : setup_.geometry.slab_count;
  engines_.push_back(std::make_unique<Running>(setup, engines_.size(), slabs));
  serving_.push_back({setup.name, ModelId{setup.model}, setup.kv_token_bytes,
                      setup.limits.block_tokens, setup.limits.max_batch});
}

// --- Requests and the scheduler ---

bool Gpu::IsTooLong(const Request& request) const {
  return std::none_of(engines_.begin(), engines_.end(), [&](const auto& e) {
    return e->setup.model == request.model &&
           request.prompt + request.output <= e->setup.longest_tokens;
  });
}

void Gpu::TakeInbox() {
  for (; !inbox_.empty() && inbox_.front().asked + setup_.path.ask_us <= now_;
       inbox_.pop_front()) {
    const Request& r = inbox_.front();
    sched::Submission s;
    s.id = r.id;
    s.model = ModelId{r.model};
    s.prompt_tokens = r.told_prompt;
    s.max_tokens = r.told_output;
    s.arrival = r.arrival;
    // An engine would refuse such a request at once (vLLM: 400).
    if (IsTooLong(r) || !scheduler_.Submit(s).ok()) {
      news_.push_back({r.id, News::Kind::kRefused, now_});
      continue;
    }
    waiting_[Number(r.id)] = {{r.id, r.prompt, 0, r.output}, s.model};
    if (r.tell_waits) tell_waits_.push_back(r.id);
    undecided_ = true;
  }
}

void Gpu::SetRooms() {
  for (const auto& engine : engines_) {
    if (engine->engine.stepping()) engine->engine.AdvanceTo(now_, begun_);
  }
  admission::SetRooms(serving_, ask_, &scheduler_);
}

void Gpu::Decide() {
  if (undecided_ || now_ >= wake_) SeeIdle();
  if (waiting_.empty()) {
    undecided_ = false;
    wake_ = kNever;
    return;
  }
  if (!undecided_ && now_ < wake_) return;
  undecided_ = false;
  SetRooms();
  SendAway();
  std::set<ModelId> late;
  for (const sched::Decision& d : scheduler_.Decide(now_)) {
    if (!d.engine && d.refusal == sched::Refusal::kDeadline) {
      late.insert(waiting_.at(Number(d.id)).model);
    }
    Obey(d);
  }
  CallBack(late);
  for (const RequestId id : std::exchange(tell_waits_, {})) {
    const auto opening = scheduler_.OpeningFor(id, now_);
    if (!opening) continue;
    news_.push_back({id, News::Kind::kWaits, now_, 0, opening->in});
  }
  Micros wake = scheduler_.NextWake(now_);
  if (idle_ != nullptr) {
    wake = std::min(wake, idle_->RestEnds(now_).value_or(kNever));
  }
  wake_ = waiting_.empty() ? kNever : std::max(wake, now_ + 1);
}

void Gpu::Withdraw(RequestId id) {
  std::erase_if(inbox_, [&](const Request& r) { return r.id == id; });
  if (waiting_.erase(Number(id)) > 0) scheduler_.Withdraw(id);
}

void Gpu::Obey(const sched::Decision& decision) {
  const auto place = waiting_.find(Number(decision.id));
  Work work = place->second.work;
  waiting_.erase(place);
  if (!decision.engine) {
    news_.push_back({decision.id, News::Kind::kRefused, now_});
    return;
  }
  news_.push_back({decision.id, News::Kind::kAdmitted, now_});
  const auto engine = static_cast<uint32_t>(Number(*decision.engine));
  work.cached = engines_[engine]->setup.CachedTokens(work.prompt);
  sent_.push_back({now_ + setup_.path.send_us, engine, work});
  if (running_++ > 0) return;
  next_beat_ = (now_ / setup_.path.beat_us + 1) * setup_.path.beat_us;
}

void Gpu::TakeSent() {
  for (; !sent_.empty() && sent_.front().at <= now_; sent_.pop_front()) {
    Running& to = *engines_[sent_.front().engine];
    to.engine.Send(sent_.front().work);
    to.plan_at = now_;
    if (to.engine.stepping()) to.engine.Cut(now_, begun_);
  }
}

// --- Engines ---

void Gpu::EndRuns() {
  for (const auto& engine : engines_) {
    if (engine->engine.stepping() && engine->engine.ends() <= now_) {
      EndRun(engine.get());
    }
  }
}

void Gpu::EndRun(Running* engine) {
  engine->engine.End(&tokens_);
  for (const Engine::Token& token : tokens_) {
    answered_.push_back({now_ + setup_.path.answer_us, token});
  }
  tokens_.clear();
  if (engine->view == nullptr) return;
  engine->view->SetActive(now_);
  ReturnDrained(engine);
}

void Gpu::TakeAnswers() {
  for (; !answered_.empty() && answered_.front().at <= now_;
       answered_.pop_front()) {
    const Engine::Token& token = answered_.front().token;
    if (token.generated == 1) {
      scheduler_.FirstToken(token.id, now_);
      news_.push_back({token.id, News::Kind::kFirstToken, now_, 1});
    }
    if (token.last) {
      scheduler_.CameWhole(token.id, token.generated, now_);
      scheduler_.Finished(token.id, token.generated);
      news_.push_back({token.id, News::Kind::kDone, now_, token.generated});
      if (--running_ == 0) next_beat_ = kNever;
    }
    undecided_ = true;
  }
}

// Tells the scheduler what the proxy's streams have generated.
void Gpu::Beat() {
  if (now_ < next_beat_) return;
  next_beat_ += setup_.path.beat_us;
  for (const auto& engine : engines_) {
    if (engine->engine.stepping()) engine->engine.AdvanceTo(now_, begun_);
    engine->engine.ForEachDecoding([&](RequestId id, uint32_t generated) {
      scheduler_.Progress(id, generated);
    });
  }
  undecided_ = true;
}

// Plans the engine's next step, unless a step is under way or planned.
void Gpu::Plan(Running* e) {
  if (e->engine.stepping() || e->planned) return;
  LookAtLeases(e);
  const EngineLimits& limits = e->setup.limits;
  const bool idle = e->engine.idle();
  if (!idle && now_ >= e->plan_at) {
    const uint64_t room =
        DivideUp(limits.chunk_tokens, limits.block_tokens) + limits.max_batch;
    if (e->view != nullptr) {
      e->view->SetWatermark(room + e->engine.waiting_blocks());
    }
    e->planned = e->engine.Plan();
    if (!e->planned) e->plan_at = now_ + kRetryUs;
    const uint32_t shortfall = e->blocks.TakeShortfall();
    if (e->view != nullptr) {
      e->view->SetStarving(shortfall, now_);
      ReturnDrained(e);  // what was preempted is free
    }
  }
  if (idle && e->view != nullptr) e->view->SetWatermark(0);
  TellWant(e);
}

// From now on steps take `factor` times as long as alone.
void Gpu::Slow(double factor) {
  const double ratio = factor / slowdown_;
  slowdown_ = factor;
  for (const auto& engine : engines_) {
    if (!engine->engine.stepping()) continue;
    engine->engine.Slow(now_, begun_, ratio);
    if (engine->engine.ends() > now_) continue;
    EndRun(engine.get());
    Plan(engine.get());
  }
}

size_t Gpu::Working() const {
  return static_cast<size_t>(std::count_if(
      engines_.begin(), engines_.end(),
      [](const auto& e) { return e->planned || e->engine.stepping(); }));
}

void Gpu::BeginRuns() {
  for (const auto& engine : engines_) Plan(engine.get());
  // An engine that Slow stops between two steps may find no block with which to
  // continue.
  for (double factor = setup_.slowdown.of(Working()); factor != slowdown_;
       factor = setup_.slowdown.of(Working())) {
    Slow(factor);
  }
  for (const auto& e : engines_) {
    if (!std::exchange(e->planned, false)) continue;
    e->engine.Begin(now_, slowdown_, setup_.most_steps,
                    e->view == nullptr ? UINT64_MAX : e->view->BlocksWithin());
  }
  begun_ = true;
}

// --- Time ---

void Gpu::Run(Micros now) {
  now_ = now;
  begun_ = false;
  TakeInbox();
  EndRuns();
  TakeAnswers();
  Beat();
  do {
    EndFills();
    if (pool_ != nullptr && (unsettled_ || now_ >= next_poll_)) SettlePool();
    Move();
    Decide();
    TakeSent();
    BeginRuns();
  } while (unsettled_ || (!fills_.empty() && fills_.front().first <= now_));
  next_ = NextEvent();
}

Micros Gpu::NextEvent() const {
  Micros next = std::min({wake_, next_beat_, next_poll_, NextMove()});
  if (!inbox_.empty()) {
    next = std::min(next, inbox_.front().asked + setup_.path.ask_us);
  }
  if (!sent_.empty()) next = std::min(next, sent_.front().at);
  if (!answered_.empty()) next = std::min(next, answered_.front().at);
  if (!fills_.empty()) next = std::min(next, fills_.front().first);
  for (const auto& e : engines_) {
    if (e->engine.stepping()) {
      next = std::min(next, e->engine.ends());
      continue;
    }
    if (!e->engine.idle()) next = std::min(next, e->plan_at);
    if (e->view != nullptr) next = std::min(next, e->view->NextWant());
  }
  // A run that begins now ends later than now, and everything else due has been
  // done.
  return next == kNever ? kNever : std::max(next, now_ + 1);
}

Gpu::Counters Gpu::counters() const {
  Counters all = stopped_;
  all.evictions = moved_.evictions;
  all.activations = moved_.activations;
  all.thrashes = moved_.thrashes;
  for (const auto& e : engines_) {
    all.preemptions += e->engine.preemptions();
    all.steps += e->engine.steps();
    all.tokens += e->engine.tokens();
  }
  if (pool_ == nullptr) return all;
  all.slabs_leased = pool_->counters().leases_granted;
  all.slabs_asked_back = pool_->counters().slabs_asked_back;
  all.slabs_returned = pool_->counters().slabs_returned;
  return all;
}

}  // namespace fineserve::sim
