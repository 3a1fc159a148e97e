#include "tests/protocol/world.h"

#include <stdlib.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/engine_entry.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {
namespace {

using abi::SlabState;
using shim::ViewLeases;
using slab::LeaseId;
using slab::Number;
using slab::SlabId;

// Two blocks a slab, one plane.
constexpr uint64_t kPageBytes = 2048;
constexpr uint32_t kBlocksPerSlab = kSlabBytes / kPageBytes;

}  // namespace

const char* NameOf(Act act) {
  constexpr const char* kNames[] = {
      "look",      "begin",     "free",      "execute", "end",
      "want more", "want less", "suspend",   "resume",  "deliver",
      "fill",      "poll",      "wait",      "die",     "bury",
      "restart",   "join",      "late fill", "exec",    "context"};
  return kNames[static_cast<int>(act)];
}

std::string Text(const std::vector<Event>& events) {
  std::string text;
  for (const Event& e : events) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", e.engine == 0 ? "A" : "B",
                    " ", NameOf(e.act));
    if (e.dies_after != Event::kLives) {
      absl::StrAppend(&text, " (the daemon dies after ", e.dies_after, ")");
    }
  }
  return text;
}

World::World(const Options& options)
    : options_(options),
      pool_({kSlabBytes, 1, options.slabs}, options.slabs),
      table_(options.slabs),
      dirty_(options.slabs, true),
      fresh_(options.slabs, true) {
  abi::TableHeader* header = table_.header();
  header->table_bytes = table_.bytes();
  header->epoch = 1;
  header->engine_capacity = abi::kEngineCapacity;
  header->granule_bytes = kSlabBytes;
  header->granules_per_slab = 1;
  header->daemon_pid = static_cast<uint32_t>(daemon_);
  Execute();
  CompleteFills(/*write=*/true);
  engines_[0].wanted = 2;
  for (int i = 0; i < kEngines; ++i) Start(&engines_[i], i);
  Poll();
}

World::~World() {
  for (Engine& e : engines_) e.leases.Close();
}

void World::Start(Engine* e, int index) {
  e->pid = 100 + index;
  e->steps_left = options_.steps[index];
  e->id = *pool_.Join(absl::StrCat("engine-", index), 0, e->pid, now_ns_);
  Require(Serve(e));
}

// False if the daemon cannot promise the view's floor.
bool World::Serve(Engine* e) {
  const slab::ViewSpec spec = {
      abi::ViewMode::kView, {1, kPageBytes, 16}, /*floor_blocks=*/1, 0};
  if (!pool_.RegisterView(e->id, e->pid, spec, {}).ok()) return false;
  Require(pool_.ActivateView(e->id, e->pid, options_.slabs, e->wanted, now_ns_)
              .ok());
  Execute();
  Require(e->leases.Open(table_.header(), table_.bytes(), pool_.SlotOf(e->id),
                         Number(e->id), options_.slabs));
  Require(e->blocks.Create(options_.slabs, kSlabBytes, kPageBytes));
  return true;
}

// True if the engine may suspend: it has waited for the device and unmapped
// everything, as EngineView does.
bool World::MaySuspend(const Engine& e) const {
  return !e.suspended && e.suspensions < options_.suspensions &&
         e.used.empty() && (e.steps.empty() || options_.no_synchronize);
}

// True if the program may make a context. The daemon learns of the former
// program's end when it is asked, at the latest.
bool World::MayMakeContext(const Engine& e) const {
  if (!e.replaced || e.has_context) return false;
  return options_.no_waiting_start ||
         (serves_ && e.buried && !pool_.Awaits(e.pid));
}

void World::Suspend(Engine* e) {
  ++e->suspensions;
  e->suspended = true;
  if (e->joined) e->outbox.push_back({Message::kSuspend, 0, 0});
}

// Resumes the engine's view. The engine's earlier messages are read before this
// request. The engine stays asleep while a dead engine's quarantine keeps what
// its floor needs.
void World::Resume(Engine* e) {
  e->leases.Close();
  std::destroy_at(&e->blocks);
  std::construct_at(&e->blocks);
  e->leases = {};
  e->suspended = !Serve(e);
  touched_ = true;
}

// Carries out what the pool's machine decides, as PoolService does.
void World::Execute() {
  for (slab::Effects effects = pool_.TakeEffects(); !effects.empty();
       effects = pool_.TakeEffects()) {
    Publish(effects);
    for (SlabId slab : effects.fill) {
      if (Lives()) filling_.push_back(slab);
    }
    if (!effects.list_processes) continue;
    std::vector<pid_t> pids = {daemon_};
    for (const Engine& e : engines_) {
      if (IsListed(e)) pids.push_back(e.pid);
    }
    for (const auto& [slab, daemon] : late_fills_) {
      if (!options_.no_former_daemon) pids.push_back(daemon);
    }
    Require(pool_.Listed(pids, daemon_));
  }
}

void World::Publish(const slab::Effects& effects) {
  abi::TableHeader* header = table_.header();
  if (Lives()) {
    header->last_engine = pool_.last_engine();
    header->last_lease = pool_.slabs().last_lease();
    header->wanted_slabs = pool_.wanted_slabs();
  }
  for (const slab::SlabChange& change : effects.changes) {
    if (!Lives()) return;
    table_.slabs()[Number(change.slab)].word.store(
        abi::SlabWord::Pack(change.word));
    fresh_[Number(change.slab)] = true;
  }
  for (uint32_t slot : effects.vacant) {
    if (Lives()) table_.Write(slot, {});
  }
  for (slab::EngineId id : effects.records) {
    if (Lives()) table_.Write(pool_.SlotOf(id), pool_.Record(id));
  }
  for (slab::EngineId id : effects.views) {
    if (Lives()) table_.engines()[pool_.SlotOf(id)].changes.fetch_add(1);
  }
}

void World::CompleteFills(bool write) {
  for (SlabId slab : std::exchange(filling_, {})) {
    if (write) dirty_[Number(slab)] = false;
    pool_.Zeroed(slab);
  }
  Execute();
}

void World::Poll() {
  touched_ = false;
  pool_.Settle(now_ns_, [this](slab::EngineId id, SlabId slab) {
    Engine& e = engines_[id == engines_[0].id ? 0 : 1];
    return e.blocks.UsedBlocks(Number(slab) + 1);
  });
  Execute();
}

uint32_t World::SlabOf(uint32_t block) const {
  return block / kBlocksPerSlab - 1;
}

// True if reading the leases could change anything.
bool World::HasToLook(const Engine& e) const {
  return e.leases.Changed() || e.leases.count(ViewLeases::Hold::kArrived) > 0 ||
         e.leases.count(ViewLeases::Hold::kLeaving) > 0;
}

std::vector<Event> World::Enabled() const {
  std::vector<Event> events;
  for (uint8_t i = 0; i < kEngines; ++i) {
    const Engine& e = engines_[i];
    const auto add = [&](Act act) { events.push_back({act, i}); };
    const bool executes =
        std::any_of(e.steps.begin(), e.steps.end(),
                    [](const Step& s) { return !s.executed; });
    if (executes) add(Act::kExecute);
    if (!e.outbox.empty() && !e.buried && serves_) add(Act::kDeliver);
    if (!e.alive) {
      if (!e.buried && serves_) add(Act::kBury);
      if (MayMakeContext(e)) add(Act::kContext);
      continue;
    }
    if (deaths_ < options_.deaths) {
      add(options_.execs ? Act::kExec : Act::kDie);
    }
    if (!e.joined && serves_) add(Act::kJoin);
    if (e.suspended) {
      if (e.outbox.empty() && e.steps.empty() && e.joined) add(Act::kResume);
      continue;
    }
    if (MaySuspend(e)) add(Act::kSuspend);
    if (HasToLook(e)) add(Act::kLook);
    if (e.steps_left > 0) add(Act::kBegin);
    if (!e.used.empty()) add(Act::kFree);
    if (!e.steps.empty() && e.steps.front().executed) add(Act::kEnd);
    if (e.changed < options_.changes) {
      add(e.wanted == 1 ? Act::kWantMore : Act::kWantLess);
    }
  }
  if (!late_fills_.empty()) events.push_back({Act::kLateFill, 0});
  if (!serves_) {
    events.push_back({Act::kRestart, 0});
    return WithCrashes(std::move(events));
  }
  if (!filling_.empty()) events.push_back({Act::kFill, 0});
  if (touched_) events.push_back({Act::kPoll, 0});
  if (pool_.restless() && waits_ < options_.waits) {
    events.push_back({Act::kWait, 0});
  }
  return WithCrashes(std::move(events));
}

void World::Apply(Event event) {
  Engine& e = engines_[event.engine];
  switch (event.act) {
    case Act::kLook:
      return Look(&e);
    case Act::kBegin:
      return Begin(&e);
    case Act::kFree:
      Require(e.blocks.Free(1, &e.used.front()) == 1);
      e.used.pop_front();
      return;
    case Act::kExecute:
      return Execute(&e);
    case Act::kEnd:
      e.blocks.EndStep(e.steps.front().number);
      e.steps.pop_front();
      return;
    case Act::kWantMore:
      return Want(&e, options_.slabs);
    case Act::kWantLess:
      return Want(&e, 1);
    case Act::kSuspend:
      return Suspend(&e);
    case Act::kResume:
      return Resume(&e);
    case Act::kDie:
    case Act::kExec:
      e.alive = false;
      e.replaced = event.act == Act::kExec;
      ++deaths_;
      return;
    case Act::kContext:
      e.has_context = true;
      return;
    case Act::kJoin:
      return Join(&e);
    case Act::kLateFill:
      return LateFill();
    default:
      return ApplyToDaemon(event);
  }
}

void World::ApplyToDaemon(Event event) {
  Engine& e = engines_[event.engine];
  if (event.dies_after != Event::kLives) deeds_left_ = event.dies_after;
  switch (event.act) {
    case Act::kDeliver:
      Deliver(&e);
      break;
    case Act::kFill:
      CompleteFills(!options_.no_zero);
      touched_ = true;
      break;
    case Act::kPoll:
      Poll();
      break;
    case Act::kWait:
      ++waits_;
      now_ns_ += slab::PoolState::kPatienceNs;
      fresh_.assign(fresh_.size(), false);
      Poll();
      break;
    case Act::kBury:
      e.buried = true;
      touched_ = true;
      pool_.Exited(e.pid, now_ns_);
      Execute();
      break;
    case Act::kRestart:
      Restart();
      break;
    default:
      abort();
  }
  if (event.dies_after != Event::kLives) Crash();
}

// Does what EngineView does at the start of a step: slabs that were asked back
// hand out no further blocks, drained ones are returned, and newly leased ones
// are used.
void World::Look(Engine* e) {
  using Hold = ViewLeases::Hold;
  e->leases.Look();
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kAsked, v)) != 0;) {
    e->blocks.Leave(v);
    e->leases.Report(v);
  }
  uint32_t drained[8];
  // Ends all steps that have begun: EndStep limits a number that is too large.
  if (options_.no_fence) e->blocks.EndStep(UINT64_MAX);
  const uint32_t count = e->blocks.TakeDrained(8, drained);
  for (uint32_t i = 0; i < count; ++i) e->leases.ReturnSlab(drained[i]);
  if (!e->joined) KeepLeases(e);
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kDone, v)) != 0;) {
    ReturnSlab(e, v);
  }
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kArrived, v)) != 0;) {
    if (dirty_[v - 1]) {
      Fail(absl::StrCat("slab ", v - 1, " was leased to engine ", e->pid,
                        " with another's bytes in it"));
    }
    Require(e->blocks.Link(v));
    e->leases.Report(v);
  }
}

void World::ReturnSlab(Engine* e, uint32_t view_index) {
  e->outbox.push_back(
      {Message::kReturn, view_index - 1, e->leases.lease(view_index)});
  e->leases.MarkSent(view_index);
}

void World::Want(Engine* e, uint32_t slabs) {
  ++e->changed;
  e->wanted = slabs;
  if (e->joined) e->outbox.push_back({Message::kWant, slabs, 0});
}

void World::Begin(Engine* e) {
  --e->steps_left;
  uint32_t block;
  while (e->blocks.Allocate(1, &block)) e->used.push_back(block);
  e->steps.push_back({e->blocks.BeginStep(), false,
                      std::vector<uint32_t>(e->used.begin(), e->used.end())});
}

void World::Execute(Engine* e) {
  const auto step = std::find_if(e->steps.begin(), e->steps.end(),
                                 [](const Step& s) { return !s.executed; });
  step->executed = true;
  for (uint32_t block : step->blocks) {
    const uint32_t slab = SlabOf(block);
    const abi::SlabWord word = WordOf(slab);
    if (word.engine != Number(e->id)) {
      Fail(absl::StrCat("engine ", e->pid, " (", e->alive ? "alive" : "dead",
                        ") wrote slab ", slab, ", which is ",
                        word.engine == 0
                            ? "no one's"
                            : absl::StrCat("engine ", word.engine, "'s")));
    }
    dirty_[slab] = true;
  }
}

void World::Deliver(Engine* e) {
  const Message message = e->outbox.front();
  e->outbox.pop_front();
  touched_ = true;
  if (message.kind == Message::kWant) {
    pool_.Want(e->id, e->pid, message.value, now_ns_);
  } else if (message.kind == Message::kSuspend) {
    // The view may be suspended already, by a message that the former daemon
    // read.
    Require(pool_.SuspendView(e->id, e->pid).ok());
  } else {
    const absl::Status s = pool_.ReturnSlab(
        e->id, e->pid, SlabId{message.value}, LeaseId{message.lease});
    if (!s.ok()) Fail(std::string(s.message()));
  }
  Execute();
}

// True if the driver lists the process, which it does as long as the process
// lives or has work on the GPU.
bool World::IsListed(const Engine& e) const {
  const bool works = std::any_of(e.steps.begin(), e.steps.end(),
                                 [](const Step& s) { return !s.executed; });
  return e.alive || e.has_context || (works && !options_.no_quarantine);
}

uint64_t World::Moves() const {
  return pool_.counters().leases_granted + pool_.counters().slabs_asked_back;
}

void World::FinishSteps(Engine* e) {
  while (!e->steps.empty()) {
    if (!e->steps.front().executed) Execute(e);
    if (e->alive) e->blocks.EndStep(e->steps.front().number);
    e->steps.pop_front();
  }
  while (e->alive && !e->used.empty()) {
    Require(e->blocks.Free(1, &e->used.front()) == 1);
    e->used.pop_front();
  }
}

void World::Round() {
  if (!serves_) Apply({Act::kRestart, 0});
  while (!late_fills_.empty()) LateFill();
  for (uint8_t i = 0; i < kEngines; ++i) {
    Engine& e = engines_[i];
    FinishSteps(&e);
    if (e.alive && !e.joined) Join(&e);
    if (e.alive && !e.suspended) Look(&e);
    while (!e.outbox.empty() && !e.buried) Deliver(&e);
    if (!e.alive && !e.buried) Apply({Act::kBury, i});
  }
  Apply({Act::kPoll, 0});
  Apply({Act::kFill, 0});
  Apply({Act::kWait, 0});
}

std::string World::Settle() {
  // An ask-back takes one round from the daemon to the engine and back; its
  // fill and the consequences take another; claims that shrink take two more.
  for (int round = 0; round < 8; ++round) Round();
  const uint64_t moves = Moves();
  for (int round = 0; round < 4; ++round) Round();
  if (Moves() != moves)
    Fail("slabs still move though no engine wants anything");
  pool_.slabs().CheckInvariants();
  for (uint32_t s = 0; s < options_.slabs && violation_.empty(); ++s) {
    const abi::SlabWord word = pool_.slabs().word(SlabId{s});
    if (abi::SlabWord::Pack(word) != abi::SlabWord::Pack(WordOf(s))) {
      Fail(absl::StrCat("the table is wrong about slab ", s));
    }
    if (word.state == SlabState::kFree) continue;
    const bool held =
        std::any_of(engines_.begin(), engines_.end(), [&](const Engine& e) {
          return e.alive && !e.suspended && Number(e.id) == word.engine &&
                 word.state == SlabState::kPartial &&
                 e.leases.hold(s + 1) == ViewLeases::Hold::kHeld;
        });
    if (!held) {
      Fail(absl::StrCat("slab ", s, " is lost: in state ",
                        static_cast<int>(word.state), ", engine ",
                        word.engine));
    }
  }
  return violation_;
}

uint64_t World::Digest() {
  Hash hash;
  for (uint32_t s = 0; s < options_.slabs; ++s) {
    const abi::SlabWord word = pool_.slabs().word(SlabId{s});
    hash.Add(static_cast<uint64_t>(word.state) | uint64_t{word.engine} << 8 |
             uint64_t{dirty_[s]} << 40 | uint64_t{fresh_[s]} << 41);
    // A lease's number shows only whether the lease is still the same one.
    for (const Engine& e : engines_) {
      hash.Add(static_cast<uint64_t>(e.leases.hold(s + 1)) |
               uint64_t{e.leases.lease(s + 1) == word.lease} << 8);
    }
  }
  for (const Engine& e : engines_) {
    hash.Add(uint64_t{e.alive} | uint64_t{e.buried} << 1 |
             uint64_t{e.joined} << 3 | uint64_t{e.replaced} << 4 |
             uint64_t{e.has_context} << 5 | uint64_t{e.wanted} << 8 |
             uint64_t{e.steps_left} << 16 | uint64_t{e.changed} << 24 |
             uint64_t{e.suspended} << 2 | uint64_t{e.suspensions} << 48 |
             uint64_t{pool_.Record(e.id).view.wanted} << 32 |
             uint64_t{pool_.Record(e.id).view.target} << 40);
    for (uint32_t block : e.used) hash.Add(block);
    for (const Step& s : e.steps) {
      hash.Add(1'000'000 + s.number * 2 + s.executed);
      for (uint32_t block : s.blocks) hash.Add(block);
    }
    for (const Message& m : e.outbox) {
      const bool current = m.kind == Message::kReturn &&
                           pool_.slabs().word(SlabId{m.value}).lease == m.lease;
      hash.Add(2'000'000 + m.value * 8 + m.kind * 2 + current);
    }
  }
  hash.Add(deaths_ | uint64_t{touched_} << 8 | uint64_t{waits_} << 48 |
           uint64_t{filling_.size()} << 16 | uint64_t{serves_} << 60);
  hash.Add(crashes_);
  for (const auto& [slab, daemon] : late_fills_) {
    hash.Add(3'000'000 + uint64_t{Number(slab)} * 8 + daemon);
  }
  // Adds the state that the next daemon would find.
  for (uint32_t s = 0; s < options_.slabs; ++s) {
    const abi::SlabWord word = WordOf(s);
    hash.Add(static_cast<uint64_t>(word.state) | uint64_t{word.engine} << 8);
  }
  hash.Add(table_.header()->daemon_pid | static_cast<uint64_t>(daemon_) << 32);
  for (uint32_t slot = 0; slot < kEngines + options_.crashes; ++slot) {
    abi::EngineRecord record;
    Require(abi::CopyRecord(table_.engines()[slot], &record));
    hash.Add(static_cast<uint64_t>(record.state) |
             uint64_t{record.member_count} << 8 |
             uint64_t{record.view.wanted} << 16 | uint64_t{record.id} << 32);
    for (uint32_t i = 0; i < record.exited_count; ++i) {
      hash.Add(record.exited_pids[i]);
    }
  }
  return hash.value();
}

}  // namespace fineserve::protocol
