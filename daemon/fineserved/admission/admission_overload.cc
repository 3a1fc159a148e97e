// The part of AdmissionService by which equal replicas on several GPUs give up
// weights for KV (design note 0047): it passes what it sees to
// overload::DropTurns, and has the decisions carried out.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/hash.h"
#include "daemon/base/log/log.h"
#include "daemon/fineserved/admission/admission_service.h"

namespace fineserve::admission {

using overload::Act;
using overload::KvLoad;
using sched::Number;
using sched::ReplicaId;

namespace {

constexpr uint64_t kTurnNs = 100'000'000;
// Time for which the memory that an idle engine frees is measured before more
// weights are given up.
constexpr uint64_t kEvictionNs = 1'000'000'000;

double Double(uint64_t n) { return static_cast<double>(n); }

double NoStep(const sched::PeerReads&) { return 0; }

// Upper bound on the share of steps that are full of prompts, if all KV that
// becomes free is used for prompts.
double FullShare(double tokens_per_us, double chunk, double full_us,
                 double decode_us) {
  const double full = std::min(tokens_per_us / chunk, 1 / full_us);
  const double decode = (1 - full * full_us) / decode_us;
  return full / (full + decode);
}

bool Reads(const AdmissionService::Sight& reader,
           const AdmissionService::Sight& lender) {
  return reader.lender_pid != 0 && reader.lender_pid == lender.address.pid;
}

// At most two replicas read from each other. A third would share the lender's
// link, and the cost to the other reader is not known here.
bool MayPair(const AdmissionService::Sight& a,
             const AdmissionService::Sight& b) {
  const bool a_reads = Reads(a, b), b_reads = Reads(b, a);
  return (a.lender_pid == 0 || a_reads) && (b.lender_pid == 0 || b_reads) &&
         a.readers <= (b_reads ? 1u : 0u) && b.readers <= (a_reads ? 1u : 0u);
}

// Describes a replica on another GPU. Only the daemon of that GPU knows the
// replica's load.
overload::Replica OtherOf(const AdmissionService::Sight& sight,
                          const AdmissionService::Sight& own,
                          const overload::Terms& terms) {
  overload::Replica r;
  r.fingerprint = sight.frozen_bytes;
  r.domain = sight.in_reach ? 1 : 2;
  // The replica has no weights to lend, or lends them all.
  if (!MayPair(own, sight)) {
    r.loans = overload::DropRules::LoansOf(UINT64_MAX, terms);
  }
  r.decode_us = r.full_us = NoStep;
  return r;
}

}  // namespace

// Counts running requests with the KV that is kept free for their answers. A
// queue from which this engine takes nothing is not part of its load.
absl::optional<KvLoad> AdmissionService::LoadOf(size_t i) const {
  const auto all = scheduler_.Engines(Now());
  const auto figures = all.find(ReplicaId{static_cast<uint32_t>(i)});
  const EngineKv& kv = kv_[i];
  if (figures == all.end() || !kv.view || kv.view->token_bytes == 0) {
    return absl::nullopt;
  }
  const uint64_t token_bytes = kv.view->token_bytes;
  const uint32_t queued = scheduler_.Figures(engines_[i].model).queued;
  KvLoad load;
  load.used =
      token_bytes * std::max(kv.view->used_tokens, figures->second.held_tokens);
  if (engines_[i].takes && queued != 0) {
    load.queued = token_bytes * figures->second.queue_tokens;
    load.head = load.queued / queued;  // each may come to be the first
  }
  load.dropped = kv.dropped.bytes;
  const uint64_t capacity = token_bytes * kv.view->tokens;
  load.undropped = capacity - std::min(capacity, load.dropped);
  return load;
}

overload::Replica AdmissionService::AskerOf(
    size_t i, const KvLoad& load, uint64_t copy_bytes,
    const overload::Terms& terms) const {
  const ReplicaId id{static_cast<uint32_t>(i)};
  const sched::ModelSpec& model = scheduler_.model(engines_[i].model);
  const sched::EngineFigures figures = scheduler_.Engines(Now()).at(id);
  sched::Predictor steps = {model.profile, model.chunk_tokens, figures.running};
  steps.kappa = figures.kappa;
  overload::Replica r;
  r.kv = load;
  r.loans = overload::DropRules::LoansOf(load.dropped, terms);
  r.fingerprint = copy_bytes;
  r.domain = 1;
  r.waiting = scheduler_.Figures(engines_[i].model).queued;
  r.running = figures.running;
  r.decode_us = [steps](const sched::PeerReads& reads) {
    sched::Profile profile = steps.profile;
    profile.peer = reads;
    return steps.kappa * profile.DecodeUs(std::max(1u, steps.running));
  };
  r.full_us = [steps](const sched::PeerReads& reads) {
    sched::Predictor full = steps;
    full.profile.peer = reads;
    return Double(static_cast<uint64_t>(full.FullStep()));
  };
  const sched::Micros ends = scheduler_.EndsIn(id);
  if (ends <= 0) return r;
  r.freed_per_us = Double(load.used) / static_cast<double>(ends);
  r.full_share =
      FullShare(r.freed_per_us / Double(kv_[i].view->token_bytes),
                steps.budget_tokens(), r.full_us({}), r.decode_us({}));
  return r;
}

absl::optional<AdmissionService::Lender> AdmissionService::LenderFor(
    size_t i, const KvLoad& load, const std::vector<Sight>& sights) {
  const Engine& engine = engines_[i];
  const auto own =
      std::find_if(sights.begin(), sights.end(), [&](const Sight& sight) {
        return sight.gpu == gpu_ && sight.name == engine.name;
      });
  if (own == sights.end() || own->frozen_bytes == 0) {
    drops_.Refuse(i, overload::Why::kUnnamed);
    return absl::nullopt;
  }
  const sched::ModelSpec& model = scheduler_.model(engine.model);
  const overload::Terms terms =
      drops_.rules().TermsOf(own->frozen_bytes, model.slo_ttft, model.slo_tpot);
  std::vector<const Sight*> seen = {&*own};
  std::vector<overload::Replica> replicas = {
      AskerOf(i, load, own->frozen_bytes, terms)};
  uint32_t before = 0;
  for (const Sight& sight : sights) {
    const auto its = model_of_.find(sight.name);
    if (sight.gpu == gpu_ || its == model_of_.end() ||
        its->second != engine.model) {
      continue;
    }
    seen.push_back(&sight);
    replicas.push_back(OtherOf(sight, *own, terms));
    before += sight.frozen_bytes == own->frozen_bytes && sight.gpu < gpu_;
  }
  const auto choice = drops_.Choose(i, replicas, terms, before, Now());
  if (!choice) return absl::nullopt;
  return Lender{seen[choice->lender], choice->bytes};
}

void AdmissionService::Drop(size_t i, const KvLoad& load) {
  const uint64_t asked = load.used + load.queued;
  const overload::Why grows = daemon_.drops.would_grow(
      asked - std::min(asked, load.undropped + load.dropped));
  if (grows != overload::Why::kDrops) return drops_.Refuse(i, grows);
  if (MakeKvRoom()) {  // whose absence costs no step
    drop_turn_ns_ = daemon_.clock->NowNs() + kEvictionNs;
    return;
  }
  const auto sights = daemon_.drops.look();
  if (!sights) return;
  const auto lender = LenderFor(i, load, *sights);
  const std::string& name = engines_[i].name;
  if (!lender) return;
  const Sight& other = *lender->sight;
  if (!daemon_.drops.drop(name, other.address, lender->bytes)) return;
  drops_.Ordered(i, Now());
  log::Info(
      "engine {}: KV is short: dropping weights for those of {} (pid {}), {} "
      "bytes in all",
      name, other.name, other.address.pid, lender->bytes);
}

// Dropped weights are seen even if the policy is off.
void AdmissionService::DropOrRestore() {
  const uint64_t now_ns = daemon_.clock->NowNs();
  if (now_ns < drop_turn_ns_) return;
  drop_turn_ns_ = now_ns + kTurnNs;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const EngineKv::Dropped& dropped = kv_[i].dropped;
    if (!drops_.on() && dropped.bytes == 0 && !drops_.waits()) continue;
    const auto load = LoadOf(i);
    if (!load) continue;
    if (dropped.bytes != 0 && load->queued != 0) daemon_.drops.grow();
    const uint64_t chance =
        base::Hash(absl::StrCat(now_ns, gpu_, engines_[i].name));
    const Act act =
        drops_.Due(i,
                   {*load, dropped.moves, dropped.trouble,
                    overload::DropRules::ShareOf(dropped.of_bytes)},
                   Double(chance >> 32) / Double(1ull << 32), Now());
    if (act == Act::kDrop) Drop(i, *load);
    if (act != Act::kRestore) continue;
    if (!daemon_.drops.restore(engines_[i].name)) continue;
    drops_.Ordered(i, Now());
    log::Info("engine {}: KV is no longer short: restoring its weights",
              engines_[i].name);
  }
}

// Each step reads the dropped weights at least once.
void AdmissionService::CountPeerReads(const std::vector<EngineKv>& kv) {
  for (size_t i = 0; i < kv.size(); ++i) {
    if (kv_[i].dropped.bytes == 0 || kv[i].steps < kv_[i].steps) continue;
    peer_read_bytes_[i] += kv_[i].dropped.bytes * (kv[i].steps - kv_[i].steps);
  }
}

double AdmissionService::AddedByReadsUs(size_t i) const {
  const auto all = scheduler_.Engines(Now());
  const auto figures = all.find(ReplicaId{static_cast<uint32_t>(i)});
  if (figures == all.end()) return 0;
  const sched::Profile& profile = scheduler_.model(engines_[i].model).profile;
  const double running = std::max(1u, figures->second.running);
  return figures->second.kappa * kv_[i].peer.AddedUs(profile.base_us, running);
}

double AdmissionService::DroppedForS(size_t i) const {
  if (kv_[i].dropped.bytes == 0) return 0;
  return static_cast<double>(Now() - drops_.since(i)) * 1e-6;
}

}  // namespace fineserve::admission
