#include "tests/protocol/group_world.h"

#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/engine_entry.h"
#include "shim/testdata/plain_view_scoreboard.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {
namespace {

using shim::GroupLeases;
using shim::ViewLeases;
using slab::Number;
using slab::SlabId;

constexpr pid_t kDaemon = 1;
constexpr uint32_t kMostSlabs = 16;

// Returns the view scoreboard number `index`. All worlds share them, because a
// writer never unmaps one.
shim::ViewScoreboardWriter* Scoreboard(size_t index) {
  static auto* const all =
      new std::deque<std::unique_ptr<shim::ViewScoreboardWriter>>;
  while (all->size() <= index) {
    all->push_back(std::make_unique<shim::ViewScoreboardWriter>());
    Require(all->back()->Adopt(shim::MakeViewScoreboard(kMostSlabs),
                               /*epoch=*/42, /*engine_id=*/1, kMostSlabs));
  }
  return (*all)[index].get();
}

}  // namespace

GroupWorld::Pool::Pool(uint32_t slabs)
    : state({kSlabBytes, 1, slabs}, slabs), table(slabs), dirty(slabs, true) {}

GroupWorld::GroupWorld(const GroupOptions& options) : options_(options) {
  for (uint32_t slabs : options.pools) pools_.emplace_back(slabs);
  for (size_t p = 0; p < pools_.size(); ++p) {
    Carry(&pools_[p]);
    Fill(nullptr, p);
  }
  for (size_t i = 0; i < options.engines.size(); ++i) {
    engines_.emplace_back();
    Start(&engines_.back(), i, options.engines[i]);
  }
}

GroupWorld::~GroupWorld() {
  for (Engine& e : engines_) {
    for (Rank& rank : e.ranks) rank.leases.Close();
    e.leases.Close();
  }
}

void GroupWorld::Start(Engine* e, size_t index,
                       const std::vector<size_t>& pools) {
  e->core = static_cast<pid_t>(100 * (index + 1));
  uint32_t views = UINT32_MAX;
  for (size_t p : pools) {
    views = std::min(views, pools_[p].state.slabs().slab_count());
  }
  for (size_t p : pools) {
    slab::PoolState& state = pools_[p].state;
    Rank& rank = e->ranks.emplace_back();
    rank.pool = p;
    rank.pid = e->core + static_cast<pid_t>(e->ranks.size());
    const std::string name = absl::StrCat("engine-", index);
    rank.id = *state.Join(name, 0, rank.pid, now_ns_);
    slab::ViewSpec spec = {abi::ViewMode::kView, {1, kSlabBytes, 16}, 1, 0};
    spec.group = true;
    Require(state.RegisterView(rank.id, rank.pid, spec, {}).ok());
    Require(state.ActivateView(rank.id, rank.pid, views, 1, now_ns_).ok());
    Require(*state.Join(name, 0, e->core, now_ns_) == rank.id);
    Require(state.RunPool(rank.id, e->core).ok());
    Carry(&pools_[p]);
    rank.wished.resize(state.slabs().slab_count());
    rank.shown = Scoreboard(16 * index + e->ranks.size());
    for (uint32_t v = 1; v <= views; ++v) rank.mapped[v] = MemoryOf(rank, v);
    Show(&rank, views);
  }
  e->views = views;
  OpenLeases(e);
}

// Opens the leases as the process that runs the block pool does when it begins.
void GroupWorld::OpenLeases(Engine* e) {
  GroupLeases::Place places[GroupLeases::kMaxRanks];
  uint32_t count = 0;
  for (Rank& rank : e->ranks) {
    Pool& pool = pools_[rank.pool];
    const uint32_t slot = pool.state.SlotOf(rank.id);
    rank.leases.Close();
    Require(rank.leases.Open(pool.table.header(), pool.table.bytes(), slot,
                             Number(rank.id), e->views));
    places[count++] = {&rank.leases, &rank.sight, rank.shown, Number(rank.id),
                       slot};
  }
  e->leases.Close();
  Require(e->leases.Open(places, count, e->views, e->views,
                         static_cast<uint32_t>(e->core)));
  e->leases.Want(e->wanted);
}

// True if a successor may run the block pool: the ranks live, and their daemons
// know of the death.
bool GroupWorld::MaySucceed(const Engine& e) const {
  if (!options_.successors || e.core_alive) return false;
  return std::all_of(e.ranks.begin(), e.ranks.end(), [&](const Rank& rank) {
    return rank.alive && rank.core_buried != options_.successor_is_predecessor;
  });
}

// Lets a successor take over the block pool. Earlier steps may still be in
// flight on the ranks, and the successor cannot know which. Messages of its
// predecessor are not read any longer.
void GroupWorld::Succeed(Engine* e, size_t) {
  const pid_t next =
      options_.successor_is_predecessor ? e->core : ++last_successor_;
  if (!RunPools(*e, next)) {
    ++refused_successors_;
    return;
  }
  ++successions_;
  e->core = next;
  e->core_alive = true;
  e->held.clear();
  e->used.clear();
  e->leaving.clear();
  for (Rank& rank : e->ranks) {
    rank.outbox.clear();
    rank.core_buried = false;
  }
  OpenLeases(e);
}

// False if a daemon refuses `core`, which then ends.
bool GroupWorld::RunPools(const Engine& e, pid_t core) {
  bool runs = true;
  for (const Rank& rank : e.ranks) {
    slab::PoolState& state = pools_[rank.pool].state;
    const std::string name = state.NameOf(rank.id);
    runs = runs && *state.Join(name, 0, core, now_ns_) == rank.id &&
           state.RunPool(rank.id, core).ok();
  }
  for (const Rank& rank : e.ranks) {
    if (!runs) pools_[rank.pool].state.Exited(core, now_ns_);
    Carry(&pools_[rank.pool]);
  }
  return runs;
}

// Carries out what a pool's machine decides, as PoolService does.
void GroupWorld::Carry(Pool* pool) {
  for (slab::Effects effects = pool->state.TakeEffects(); !effects.empty();
       effects = pool->state.TakeEffects()) {
    for (const slab::SlabChange& change : effects.changes) {
      abi::SlabEntry& entry = pool->table.slabs()[Number(change.slab)];
      const bool was_absent = abi::SlabWord::Unpack(entry.word.load()).state ==
                              abi::SlabState::kAbsent;
      entry.memory += was_absent;
      entry.word.store(abi::SlabWord::Pack(change.word));
    }
    pool->making.insert(pool->making.end(), effects.make.begin(),
                        effects.make.end());
    Publish(pool);
    for (slab::EngineId id : effects.views) {
      pool->table.engines()[pool->state.SlotOf(id)].changes.fetch_add(1);
    }
    pool->filling.insert(pool->filling.end(), effects.fill.begin(),
                         effects.fill.end());
    if (!effects.list_processes) continue;
    std::vector<pid_t> pids = {kDaemon};
    for (const Engine& e : engines_) {
      for (size_t r = 0; r < e.ranks.size(); ++r) {
        if (&pools_[e.ranks[r].pool] == pool && IsListed(e.ranks[r], e, r)) {
          pids.push_back(e.ranks[r].pid);
        }
      }
    }
    Require(pool->state.Listed(pids, kDaemon));
  }
}

void GroupWorld::Publish(Pool* pool) {
  for (const Engine& e : engines_) {
    for (const Rank& rank : e.ranks) {
      if (&pools_[rank.pool] != pool || pool->state.NameOf(rank.id).empty()) {
        continue;
      }
      pool->table.Write(pool->state.SlotOf(rank.id),
                        pool->state.Record(rank.id));
    }
  }
}

bool GroupWorld::Dead(const Engine& e) const {
  return !e.core_alive ||
         std::any_of(e.ranks.begin(), e.ranks.end(),
                     [](const Rank& rank) { return !rank.alive; });
}

void GroupWorld::Happen(uint32_t random) {
  struct Event {
    Choice what;
    Engine* engine;
    size_t index;
  };
  std::vector<Event> events;
  // Deaths are rare, because otherwise little else would happen.
  const bool may_die = deaths_ < options_.deaths && (random >> 16) % 32 == 0;
  for (Engine& e : engines_) {
    if (e.core_alive) {
      events.push_back({&GroupWorld::Look, &e, 0});
      events.push_back({&GroupWorld::WantOther, &e, 0});
      if (!Dead(e)) events.push_back({&GroupWorld::Begin, &e, 0});
      if (!e.used.empty()) events.push_back({&GroupWorld::Free, &e, 0});
      if (!e.steps.empty()) events.push_back({&GroupWorld::End, &e, 0});
      if (may_die) {
        events.push_back({&GroupWorld::DieCore, &e, 0});
      }
    }
    if (MaySucceed(e)) events.push_back({&GroupWorld::Succeed, &e, 0});
    for (size_t r = 0; r < e.ranks.size(); ++r) {
      const Rank& rank = e.ranks[r];
      if (CanExecute(e, r)) events.push_back({&GroupWorld::Execute, &e, r});
      if (!rank.outbox.empty() && !rank.core_buried) {
        events.push_back({&GroupWorld::Deliver, &e, r});
      }
      if (rank.alive && options_.resizes > 0) {
        events.push_back({&GroupWorld::Map, &e, r});
      }
      if (rank.alive && may_die) {
        events.push_back({&GroupWorld::DieRank, &e, r});
      }
      if (!rank.alive && !rank.rank_buried) {
        events.push_back({&GroupWorld::BuryRank, &e, r});
      }
      if (!e.core_alive && !rank.core_buried) {
        events.push_back({&GroupWorld::BuryCore, &e, r});
      }
    }
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    events.push_back({&GroupWorld::Poll, nullptr, p});
    if (!pools_[p].filling.empty()) {
      events.push_back({&GroupWorld::Fill, nullptr, p});
    }
    if (!pools_[p].making.empty()) {
      events.push_back({&GroupWorld::Make, nullptr, p});
    }
    if (resizes_ < options_.resizes && (random >> 16) % 8 == 0) {
      events.push_back({&GroupWorld::Resize, nullptr, p});
    }
  }
  events.push_back({&GroupWorld::Wait, nullptr, 0});
  const Event& chosen = events[random % events.size()];
  (this->*chosen.what)(chosen.engine, chosen.index);
}

// Looks as GroupView::Work does, and then plans as the engine's pool does at
// its schedule entry.
void GroupWorld::Look(Engine* e, size_t) {
  for (Rank& rank : e->ranks) {
    if (options_.shows_too_early) Show(&rank, e->views);
    rank.leases.Look();
    rank.sight.Look(pools_[rank.pool].table.header());
  }
  e->leases.Look();
  e->leases.Plan(options_.no_patience ? 1 : now_ns_ / 1'000'000);
  Report(e);
  ReturnDrained(e);
  Send(e);
}

void GroupWorld::Report(Engine* e) {
  using Hold = GroupLeases::Hold;
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kAsked, v)) != 0;) {
    e->leases.Report(v);
    e->held.erase(v);
    e->leaving[v] = e->steps_begun;
  }
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kReady, v)) != 0;) {
    e->leases.Report(v);
    e->held.insert(v);
  }
  if (!options_.lease_of_rank_0) return;
  for (uint32_t v = 1; v <= e->leases.views(); ++v) {
    const abi::SlabWord word = e->ranks[0].leases.word(v);
    if (word.engine == Number(e->ranks[0].id) && e->leaving.count(v) == 0) {
      e->held.insert(v);
    }
  }
}

void GroupWorld::ReturnDrained(Engine* e) {
  for (auto it = e->leaving.begin(); it != e->leaving.end();) {
    const auto [v, barrier] = *it;
    ++it;
    if (e->used.count(v) != 0 || !Ended(*e, barrier)) continue;
    e->leaving.erase(v);
    e->leases.Return(v);
    ++slabs_returned_;
  }
}

bool GroupWorld::Ended(const Engine& e, uint64_t step) const {
  return std::all_of(e.steps.begin(), e.steps.end(), [&](const Step& s) {
    return s.number > step || (options_.fence_of_rank_0 && s.executed[0]);
  });
}

void GroupWorld::Send(Engine* e) {
  for (Rank& rank : e->ranks) {
    for (uint32_t v = 1; v <= e->leases.views(); ++v) {
      rank.wished[v - 1] = e->leases.wished(v);
    }
    using On = ViewLeases::Hold;
    for (uint32_t v = 0; (v = rank.leases.Next(On::kDone, v)) != 0;) {
      rank.outbox.push_back({false, v - 1, rank.leases.lease(v)});
      rank.leases.MarkSent(v);
    }
    if (e->leases.TakeWishesChanged() || e->leases.wants_more() ||
        e->leases.take() < e->wanted) {
      rank.outbox.push_back({true, e->leases.take(), 0});
    }
  }
  for (Rank& rank : e->ranks) {
    rank.outbox.push_back({true, e->leases.take(), 0});
  }
}

void GroupWorld::Begin(Engine* e, size_t) {
  if (e->steps.size() >= 3) return;
  e->used.insert(e->held.begin(), e->held.end());
  for (uint32_t v : e->used) {
    for (const Rank& rank : e->ranks) {
      const Pool& pool = pools_[rank.pool];
      const abi::SlabWord word = pool.state.slabs().word(SlabId{v - 1});
      if (word.engine != Number(rank.id)) {
        Fail(absl::StrCat("engine ", e->core, " uses slab ", v - 1,
                          ", which pool ", rank.pool, " has not leased to it"));
      }
    }
  }
  slabs_used_ += e->used.size();
  e->steps.push_back(
      {++e->steps_begun, std::vector<bool>(e->ranks.size(), false), e->used});
}

void GroupWorld::Free(Engine* e, size_t) {
  const uint32_t v = *e->used.begin();
  e->used.erase(v);
  const auto leaving = e->leaving.find(v);
  if (leaving != e->leaving.end()) leaving->second = e->steps_begun;
}

bool GroupWorld::CanExecute(const Engine& e, size_t rank) const {
  return std::any_of(e.steps.begin(), e.steps.end(),
                     [&](const Step& s) { return !s.executed[rank]; });
}

void GroupWorld::Execute(Engine* e, size_t r) {
  const auto step = std::find_if(e->steps.begin(), e->steps.end(),
                                 [&](const Step& s) { return !s.executed[r]; });
  step->executed[r] = true;
  const Rank& rank = e->ranks[r];
  Pool& pool = pools_[rank.pool];
  for (uint32_t v : step->used) {
    const abi::SlabWord word = pool.state.slabs().word(SlabId{v - 1});
    if (word.engine != Number(rank.id)) {
      Fail(absl::StrCat("rank ", r, " of engine ", e->core, " wrote slab ",
                        v - 1, ", which is engine ", word.engine, "'s"));
    }
    if (rank.mapped.at(v) != MemoryOf(rank, v)) {
      Fail(absl::StrCat("rank ", r, " of engine ", e->core, " wrote slab ",
                        v - 1, ", whose memory ", MemoryOf(rank, v),
                        " it has not mapped"));
    }
    grown_used_ += MemoryOf(rank, v) > 1;
    pool.dirty[v - 1] = true;
  }
}

void GroupWorld::End(Engine* e, size_t) {
  const Step& first = e->steps.front();
  if (std::count(first.executed.begin(), first.executed.end(), false) == 0) {
    e->steps.pop_front();
  }
}

void GroupWorld::WantOther(Engine* e, size_t) {
  e->wanted = e->wanted == 1 ? e->leases.views() : 1;
  e->leases.Want(e->wanted);
}

void GroupWorld::Deliver(Engine* e, size_t r) {
  Rank& rank = e->ranks[r];
  slab::PoolState& state = pools_[rank.pool].state;
  const Message message = rank.outbox.front();
  rank.outbox.pop_front();
  if (message.want) {
    state.Want(rank.id, e->core, message.value, now_ns_);
  } else if (rank.alive) {
    const absl::Status s = state.ReturnSlab(
        rank.id, e->core, SlabId{message.value}, slab::LeaseId{message.lease});
    if (!s.ok() && !rank.rank_buried) Fail(std::string(s.message()));
  }
  Carry(&pools_[rank.pool]);
}

void GroupWorld::Poll(Engine*, size_t p) {
  const auto rank_of = [&](slab::EngineId id) -> std::pair<Engine*, Rank*> {
    for (Engine& e : engines_) {
      for (Rank& rank : e.ranks) {
        if (rank.pool == p && rank.id == id) return {&e, &rank};
      }
    }
    abort();
  };
  pools_[p].state.Settle(
      now_ns_,
      [&](slab::EngineId id, SlabId slab) -> uint32_t {
        return rank_of(id).first->used.count(Number(slab) + 1) != 0;
      },
      [&](slab::EngineId id, SlabId slab) -> bool {
        return rank_of(id).second->wished[Number(slab)];
      });
  Carry(&pools_[p]);
}

void GroupWorld::Fill(Engine*, size_t p) {
  for (SlabId slab : std::exchange(pools_[p].filling, {})) {
    pools_[p].dirty[Number(slab)] = false;
    pools_[p].state.Zeroed(slab);
  }
  Carry(&pools_[p]);
}

// Makes a pool smaller, or gives it its first size again.
void GroupWorld::Resize(Engine*, size_t p) {
  slab::PoolState& state = pools_[p].state;
  const uint32_t all = state.slabs().slab_count();
  const bool is_whole = state.present_slabs() == all && !state.resizing();
  ++resizes_;
  // Refused if floors take more.
  state.Resize(is_whole ? all / 2 : all).IgnoreError();
  Carry(&pools_[p]);
}

void GroupWorld::Make(Engine*, size_t p) {
  for (SlabId slab : std::exchange(pools_[p].making, {})) {
    pools_[p].state.Made(slab);
    pools_[p].dirty[Number(slab)] = true;
  }
  Carry(&pools_[p]);
}

// Returns the number of the slab's memory, as ViewLeases counts it.
uint64_t GroupWorld::MemoryOf(const Rank& rank, uint32_t v) {
  const abi::SlabEntry& entry = pools_[rank.pool].table.slabs()[v - 1];
  const bool is_absent =
      abi::SlabWord::Unpack(entry.word.load()).state == abi::SlabState::kAbsent;
  return is_absent ? 0 : entry.memory.load() + 1;
}

// A rank's keeper: lets go of what has left the pool, and maps what has joined
// it.
void GroupWorld::Map(Engine* e, size_t r) {
  Rank& rank = e->ranks[r];
  for (auto& [v, memory] : rank.mapped) memory = MemoryOf(rank, v);
  Show(&rank, e->views);
}

void GroupWorld::Show(Rank* rank, uint32_t views) {
  for (uint32_t v = 1; v <= views; ++v) {
    rank->shown->ShowMapped(
        v, options_.shows_too_early ? MemoryOf(*rank, v) : rank->mapped[v]);
  }
}

void GroupWorld::Wait(Engine*, size_t) {
  now_ns_ += slab::PoolState::kPatienceNs;
}

void GroupWorld::DieRank(Engine* e, size_t rank) {
  e->ranks[rank].alive = false;
  ++deaths_;
}

void GroupWorld::DieCore(Engine* e, size_t) {
  e->core_alive = false;
  ++deaths_;
}

void GroupWorld::BuryRank(Engine* e, size_t r) {
  Rank& rank = e->ranks[r];
  rank.rank_buried = true;
  pools_[rank.pool].state.Exited(rank.pid, now_ns_);
  Carry(&pools_[rank.pool]);
}

void GroupWorld::BuryCore(Engine* e, size_t r) {
  Rank& rank = e->ranks[r];
  rank.core_buried = true;
  pools_[rank.pool].state.Exited(e->core, now_ns_);
  Carry(&pools_[rank.pool]);
}

// True if the driver lists the process, which it does as long as the process
// lives or has work on the GPU.
bool GroupWorld::IsListed(const Rank& rank, const Engine& e, size_t r) const {
  return rank.alive || CanExecute(e, r);
}

// Ends an engine as a whole, after one of its processes has died.
void GroupWorld::Finish(Engine* e) {
  for (size_t r = 0; r < e->ranks.size(); ++r) {
    while (CanExecute(*e, r)) Execute(e, r);
  }
  if (Dead(*e)) {
    e->core_alive = false;
    for (Rank& rank : e->ranks) rank.alive = false;
    e->used.clear();
    e->held.clear();
  }
  e->steps.clear();
  while (!e->used.empty()) Free(e, 0);
  if (e->core_alive) Look(e, 0);
  for (size_t r = 0; r < e->ranks.size(); ++r) {
    Rank& rank = e->ranks[r];
    while (!rank.outbox.empty() && !rank.core_buried) Deliver(e, r);
    if (!rank.alive && !rank.rank_buried) BuryRank(e, r);
    if (!e->core_alive && !rank.core_buried) BuryCore(e, r);
  }
}

void GroupWorld::Round() {
  for (Engine& e : engines_) {
    for (size_t r = 0; r < e.ranks.size(); ++r) {
      if (e.ranks[r].alive) Map(&e, r);
    }
    Finish(&e);
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    Poll(nullptr, p);
    Make(nullptr, p);
    Fill(nullptr, p);
  }
  Wait(nullptr, 0);
}

uint64_t GroupWorld::Moves() const {
  uint64_t moves = 0;
  for (const Pool& pool : pools_) {
    moves += pool.state.counters().leases_granted +
             pool.state.counters().slabs_asked_back;
  }
  return moves;
}

std::string GroupWorld::Settle() {
  for (Pool& pool : pools_) {
    Require(pool.state.Resize(pool.state.slabs().slab_count()).ok());
    Carry(&pool);
  }
  for (int round = 0; round < 60; ++round) Round();
  const uint64_t moves = Moves();
  for (int round = 0; round < 20; ++round) Round();
  if (Moves() != moves) Fail("slabs still move though nothing new is wanted");
  CheckNothingLost();
  return violation_;
}

void GroupWorld::CheckNothingLost() {
  for (size_t p = 0; p < pools_.size(); ++p) {
    const slab::SlabManager& slabs = pools_[p].state.slabs();
    slabs.CheckInvariants();
    for (uint32_t s = 0; s < slabs.slab_count(); ++s) {
      const abi::SlabWord word = slabs.word(SlabId{s});
      if (word.state == abi::SlabState::kFree) continue;
      const bool held =
          std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
            return e.core_alive && e.held.count(s + 1) != 0 &&
                   std::any_of(e.ranks.begin(), e.ranks.end(),
                               [&](const Rank& rank) {
                                 return rank.pool == p &&
                                        Number(rank.id) == word.engine;
                               });
          });
      if (held) continue;
      Fail(absl::StrCat("slab ", s, " of pool ", p, " is lost: in state ",
                        static_cast<int>(word.state), ", engine ",
                        word.engine));
    }
  }
  for (const Engine& e : engines_) {
    if (e.core_alive && e.held.empty()) {
      Fail(absl::StrCat("engine ", e.core, " has not even its floor"));
    }
  }
}

}  // namespace fineserve::protocol
