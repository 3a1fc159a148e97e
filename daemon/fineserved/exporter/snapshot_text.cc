#include "daemon/fineserved/exporter/snapshot_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/slab_state_name.h"
#include "daemon/fineserved/exporter/names.h"
#include "daemon/fineserved/exporter/page.h"

namespace fineserve::exporter {
namespace {

using abi::SlabState;
using metrics::MetricId;
using metrics::Snapshot;

constexpr double kMicro = 1e-6;
constexpr double kNano = 1e-9;

double Number(uint64_t n) { return static_cast<double>(n); }

// The states in which an engine can hold a slab.
constexpr SlabState kHeldStates[] = {SlabState::kPartial, SlabState::kFull,
                                     SlabState::kReturning,
                                     SlabState::kQuarantined};

void AddDaemon(const Snapshot& from, const ScrapeFigures& scrapes, Page* page) {
  const metrics::Identity& who = *from.identity;
  page->Add(MetricId::kBuildInfo,
            {who.version, absl::StrCat(who.abi), who.gpu, who.device,
             absl::StrCat(absl::Hex(who.epoch, absl::kZeroPad16))},
            1);
  page->Add(MetricId::kStartTime, {}, who.started_s);
  const metrics::TableFigures& table = from.table;
  page->Add(MetricId::kTakeovers, {}, table.daemons - 1);
  page->Add(MetricId::kLongestTurn, {},
            Number(table.loop_longest_turn_us) * kMicro);
  page->Add(MetricId::kScrapes, {}, Number(scrapes.scrapes));
  page->Add(MetricId::kScrapeTime, {}, scrapes.loop_s);
  page->Add(MetricId::kMessagesDropped, {}, Number(table.messages_dropped));
  page->Add(MetricId::kPeersRefused, {}, Number(table.connections_refused));
  page->Add(MetricId::kProcessListsUseless, {},
            Number(table.process_lists_useless));
  page->Add(MetricId::kFormerPoolProcesses, {}, scrapes.former_pool_processes);
}

void AddPool(const metrics::PoolFigures& pool, Page* page) {
  for (size_t i = 0; i < pool.slabs.size(); ++i) {
    const char* const state = abi::SlabStateName(static_cast<SlabState>(i));
    page->Add(MetricId::kPoolSlabs, {state}, pool.slabs[i]);
    page->Add(MetricId::kPoolBytes, {state},
              Number(pool.slabs[i] * pool.slab_bytes));
  }
  page->Add(MetricId::kSlabBytes, {}, Number(pool.slab_bytes));
  page->Add(MetricId::kPoolWantedBytes, {},
            Number(pool.wanted_slabs * pool.slab_bytes));
  page->Add(MetricId::kLeasesGranted, {}, Number(pool.leases_granted));
  page->Add(MetricId::kLeasesDenied, {}, Number(pool.leases_denied));
  page->Add(MetricId::kHandOvers, {}, Number(pool.hand_overs));
  page->Add(MetricId::kSlabsAskedBack, {}, Number(pool.slabs_asked_back));
  page->Add(MetricId::kSlabsReturned, {}, Number(pool.slabs_returned));
  page->Add(MetricId::kSlabsZeroed, {}, Number(pool.slabs_zeroed));
  page->Add(MetricId::kZeroedBytes, {},
            Number(pool.slabs_zeroed * pool.slab_bytes));
  page->Add(MetricId::kSlabsAdded, {}, Number(pool.slabs_added));
  page->Add(MetricId::kSlabsWithdrawn, {}, Number(pool.slabs_withdrawn));
  page->Add(MetricId::kSlabsQuarantined, {}, Number(pool.slabs_quarantined));
  page->Add(MetricId::kEnginesDied, {}, Number(pool.engines_died));
  page->Add(MetricId::kQuarantineAge, {}, pool.quarantine_age_s);
  page->Add(MetricId::kMemoryErrors, {}, Number(pool.memory_errors));
  page->Add(MetricId::kMoves, {"evicted"}, Number(pool.moves.evicted));
  page->Add(MetricId::kMoves, {"activated"}, Number(pool.moves.activated));
  page->Add(MetricId::kMoves, {"failed"}, Number(pool.moves.failed));
  page->Add(MetricId::kMoves, {"dropped"}, Number(pool.moves.dropped));
  page->Add(MetricId::kMoves, {"restored"}, Number(pool.moves.restored));
  const metrics::StoreFigures& store = pool.store;
  page->Add(MetricId::kStoreBytes, {"needed"},
            Number(store.held_bytes - store.spare_bytes));
  page->Add(MetricId::kStoreBytes, {"spare"}, Number(store.spare_bytes));
  page->Add(MetricId::kStoreLimitBytes, {}, Number(store.limit_bytes));
  page->Add(MetricId::kStoreUnsharedBytes, {}, Number(store.unshared_bytes));
  page->Add(MetricId::kStoredBytes, {"copied"}, Number(store.copied_bytes));
  page->Add(MetricId::kStoredBytes, {"found"}, Number(store.found_bytes));
  page->Add(MetricId::kFilledBytes, {"own"}, Number(store.own_link_bytes));
  page->Add(MetricId::kFilledBytes, {"other"}, Number(store.other_links_bytes));
  page->AddTimes(MetricId::kAskBackTime, {}, pool.ask_back);
  page->AddTimes(MetricId::kZeroingTime, {}, pool.zeroing);
}

// Sums over the engines of one name: those of two users, or a dead engine and
// its successor.
struct Held {
  metrics::SlabsByState slabs = {};
  uint64_t wanted = 0, target = 0, floor = 0, floor_unmet = 0;
  uint64_t swaps_ns = 0;
  uint64_t longest_swap_ns = 0;  // of all of them
  uint64_t evicted_bytes = 0;
};

using ModelOf = std::map<std::string, std::string>;  // by engine

ModelOf ModelsOfEngines(const Snapshot& from) {
  ModelOf models;
  if (!from.admission) return models;
  for (const metrics::FleetEngine& engine : from.admission->engines) {
    models[LabelOf(engine.name)] = LabelOf(engine.model);
  }
  return models;
}

void AddHeld(const std::string& engine, const std::string& model,
             const Held& held, uint64_t slab_bytes, Page* page) {
  for (const SlabState state : kHeldStates) {
    const char* const name = abi::SlabStateName(state);
    const uint64_t slabs = held.slabs[static_cast<size_t>(state)];
    page->Add(MetricId::kEngineSlabs, {engine, model, name}, Number(slabs));
    page->Add(MetricId::kEngineBytes, {engine, model, name},
              Number(slabs * slab_bytes));
  }
  const auto add = [&](MetricId id, uint64_t slabs) {
    page->Add(id, {engine, model}, Number(slabs * slab_bytes));
  };
  add(MetricId::kEngineWantedBytes, held.wanted);
  add(MetricId::kEngineTargetBytes, held.target);
  add(MetricId::kEngineFloorBytes, held.floor);
  add(MetricId::kEngineFloorUnmetBytes, held.floor_unmet);
  page->Add(MetricId::kEngineEvictedBytes, {engine, model},
            Number(held.evicted_bytes));
  page->Add(MetricId::kEngineSwapTime, {engine, model},
            Number(held.swaps_ns) * kNano);
  page->Add(MetricId::kEngineLongestSwap, {engine, model},
            Number(held.longest_swap_ns) * kNano);
}

void AddPoolEngines(const Snapshot& from, Page* page) {
  const ModelOf models = ModelsOfEngines(from);
  ByName<Held> by_name;
  uint32_t alive = 0;
  uint32_t unmet = 0;
  for (const metrics::PoolEngine& engine : from.pool.engines) {
    alive += engine.alive;
    unmet += engine.floor_unmet > 0;
    Held& held = by_name.Of(engine.name);
    for (size_t i = 0; i < held.slabs.size(); ++i) {
      held.slabs[i] += engine.slabs[i];
    }
    held.wanted += engine.wanted;
    held.target += engine.target;
    held.floor += engine.floor;
    held.floor_unmet += engine.floor_unmet;
    held.swaps_ns += engine.swaps_ns;
    held.evicted_bytes += engine.evicted_bytes;
    held.longest_swap_ns =
        std::max(held.longest_swap_ns, engine.longest_swap_ns);
  }
  for (const auto& [name, held] : by_name.all()) {
    const auto model = models.find(name);
    AddHeld(name, model == models.end() ? "" : model->second, held,
            from.pool.slab_bytes, page);
  }
  page->Add(MetricId::kEngines, {"alive"}, alive);
  page->Add(MetricId::kEngines, {"quarantined"},
            Number(from.pool.engines.size() - alive));
  page->Add(MetricId::kFloorsUnmet, {}, unmet);
  ByName<uint64_t> starts;
  for (const auto& [name, count] : from.pool.engine_starts) {
    starts.Of(name) += count;
  }
  for (const auto& [name, count] : starts.all()) {
    page->Add(MetricId::kEngineStarts, {name}, Number(count));
  }
}

void AddDriver(const metrics::DriverFigures& driver, Page* page) {
  for (size_t i = 0; i < driver.size(); ++i) {
    const char* const call = metrics::kDriverCalls[i];
    page->AddTimes(MetricId::kDriverCallTime, {call}, driver[i].times);
    page->Add(MetricId::kDriverCallErrors, {call}, Number(driver[i].errors));
  }
}

void AddModel(const std::string& name, const metrics::ModelFigures& model,
              Page* page) {
  const auto add = [&](MetricId id, const char* which, uint64_t n) {
    page->Add(id, {name, which}, Number(n));
  };
  add(MetricId::kQueuedRequests, "in_time", model.queued - model.degraded);
  add(MetricId::kQueuedRequests, "degraded", model.degraded);
  page->Add(MetricId::kQueuedTokens, {name}, Number(model.queued_tokens));
  uint64_t rejected = 0;
  for (size_t i = 0; i < model.rejected.size(); ++i) {
    const absl::string_view why = verdict::kRefusalTexts[i + 1].word;
    add(MetricId::kRejections, why.data(), model.rejected[i]);
    rejected += model.rejected[i];
  }
  add(MetricId::kDecisions, "admitted", model.admitted);
  add(MetricId::kDecisions, "degraded", model.admitted_degraded);
  add(MetricId::kDecisions, "rejected", rejected);
  add(MetricId::kDecisions, "cancelled", model.cancelled);
  add(MetricId::kFirstTokens, "on_time", model.on_time);
  add(MetricId::kFirstTokens, "late", model.late);
  if (name != kOther) {
    page->Add(MetricId::kTtftSlo, {name}, model.slo_ttft_s);
  }
  if (name == kOther || !model.wanted_replicas) return;
  page->Add(MetricId::kWantedReplicas, {name}, *model.wanted_replicas);
  page->Add(MetricId::kUnlistedReplicas, {name}, model.unlisted_replicas);
}

void Sum(const metrics::ModelFigures& one, metrics::ModelFigures* all) {
  all->slo_ttft_s = one.slo_ttft_s;
  all->queued += one.queued;
  all->degraded += one.degraded;
  all->queued_tokens += one.queued_tokens;
  all->admitted += one.admitted;
  all->admitted_degraded += one.admitted_degraded;
  all->cancelled += one.cancelled;
  for (size_t i = 0; i < all->rejected.size(); ++i) {
    all->rejected[i] += one.rejected[i];
  }
  all->on_time += one.on_time;
  all->late += one.late;
  all->wanted_replicas = one.wanted_replicas;
  all->unlisted_replicas = one.unlisted_replicas;
}

// `is_heard` is true if a proxy reports which engines serve.
void AddFleetEngine(const std::string& name, const metrics::FleetEngine& engine,
                    bool is_heard, Page* page) {
  const auto add = [&](MetricId id, double value) {
    page->Add(id, {name, engine.model}, value);
  };
  add(MetricId::kEngineTroubles, engine.troubles);
  add(MetricId::kEngineRequests, engine.running);
  add(MetricId::kEngineMostRequests, engine.most_running);
  add(MetricId::kEngineKvTokens, Number(engine.kv_tokens));
  add(MetricId::kEngineHeldTokens, Number(engine.held_tokens));
  add(MetricId::kEngineBacklogTokens, Number(engine.backlog_tokens));
  add(MetricId::kEngineDroppedBytes, Number(engine.dropped_bytes));
  add(MetricId::kPeerReadBytes, Number(engine.peer_read_bytes));
  if (name == kOther) return;  // sums of the following would say nothing
  if (is_heard) add(MetricId::kEngineServes, engine.serves);
  add(MetricId::kEngineDrains, engine.drains);
  add(MetricId::kEngineOnRequest, engine.on_request);
  add(MetricId::kEngineScaled, engine.scaled);
  add(MetricId::kEngineKappa, engine.kappa);
  add(MetricId::kEngineDroppedTime, engine.dropped_s);
}

void Sum(const metrics::FleetEngine& one, const std::string& model,
         metrics::FleetEngine* all) {
  all->model = model;
  all->serves = one.serves;
  all->drains = one.drains;
  all->on_request = one.on_request;
  all->scaled = one.scaled;
  all->kappa = one.kappa;
  all->troubles += one.troubles;
  all->running += one.running;
  all->most_running += one.most_running;
  all->kv_tokens += one.kv_tokens;
  all->held_tokens += one.held_tokens;
  all->backlog_tokens += one.backlog_tokens;
  all->dropped_bytes += one.dropped_bytes;
  all->dropped_s = one.dropped_s;
  all->peer_read_bytes += one.peer_read_bytes;
}

void AddAdmission(const metrics::AdmissionFigures& from, Page* page) {
  page->Add(MetricId::kProxies, {}, from.proxies);
  for (size_t i = 0; i < from.refused_connections.size(); ++i) {
    page->Add(MetricId::kMachinesRefused, {metrics::kConnectionFaultReasons[i]},
              Number(from.refused_connections[i]));
  }
  ByName<metrics::ModelFigures> models;
  for (const metrics::ModelFigures& model : from.models) {
    Sum(model, &models.Of(model.name));
  }
  for (const auto& [name, model] : models.all()) AddModel(name, model, page);
  ByName<metrics::FleetEngine> engines;
  for (const metrics::FleetEngine& engine : from.engines) {
    metrics::FleetEngine& sum = engines.Of(engine.name);
    Sum(engine, &sum == engines.Find(kOther) ? "" : LabelOf(engine.model),
        &sum);
  }
  for (const auto& [name, engine] : engines.all()) {
    AddFleetEngine(name, engine, from.proxies > 0, page);
  }
}

void AddPlan(const metrics::PlanFigures& plan, Page* page) {
  page->Add(MetricId::kPlanNumber, {}, Number(plan.number));
  page->Add(MetricId::kPlanLeads, {}, plan.leads);
  page->Add(MetricId::kPlanFrozen, {}, plan.frozen);
  page->Add(MetricId::kPlanMoving, {}, plan.moving);
  page->Add(MetricId::kPlanMoves, {}, Number(plan.moves));
  page->Add(MetricId::kPlansRefused, {}, Number(plan.refused));
  page->Add(MetricId::kPlanTroubles, {}, plan.troubles);
}

}  // namespace

std::string SnapshotText(const Snapshot& snapshot,
                         const ScrapeFigures& scrapes) {
  Page page;
  AddDaemon(snapshot, scrapes, &page);
  AddPool(snapshot.pool, &page);
  AddPoolEngines(snapshot, &page);
  AddDriver(snapshot.driver, &page);
  if (snapshot.admission) AddAdmission(*snapshot.admission, &page);
  if (snapshot.plan) AddPlan(*snapshot.plan, &page);
  return page.Text();
}

}  // namespace fineserve::exporter
