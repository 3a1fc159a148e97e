#include "tests/protocol/lease_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/table_reader.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {
namespace {

using abi::SlabState;
using slab::LeaseId;
using slab::Number;
using slab::SlabId;

constexpr uint64_t kNow = 1;

}  // namespace

std::string LeaseWorld::Text(const std::vector<Event>& events) {
  constexpr const char* kNames[] = {"ask",    "deliver", "receive", "fetch",
                                    "return", "drop",    "rejoin",  "give up",
                                    "die",    "bury",    "fill",    "restart"};
  std::string text;
  for (const Event& e : events) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    kNames[static_cast<int>(e.act)], " ", e.who);
    if (e.dies_after != Event::kLives) {
      absl::StrAppend(&text, " (the daemon dies after ", e.dies_after, ")");
    }
  }
  return text;
}

LeaseWorld::LeaseWorld(const LeaseOptions& options)
    : options_(options),
      pool_({kSlabBytes, 1, kSlabs}, kSlabs),
      table_(kSlabs) {
  abi::TableHeader* header = table_.header();
  header->table_bytes = table_.bytes();
  header->epoch = 1;
  header->engine_capacity = abi::kEngineCapacity;
  header->granule_bytes = kSlabBytes;
  header->granules_per_slab = 1;
  header->daemon_pid = static_cast<uint32_t>(daemon_);
  Execute();
  Fill();
  for (int i = 0; i < kProcesses; ++i) {
    processes_[i].pid = 100 + i;
    Join(&processes_[i]);
  }
}

// --- Processes, as DaemonLink ---

void LeaseWorld::Join(Process* p) {
  engine_ = *pool_.Join("engine", 0, p->pid, kNow);
  Execute();
  connections_.emplace_back();
  connections_.back().process = static_cast<int>(p - processes_.data());
  p->connection = static_cast<int>(connections_.size()) - 1;
  for (const Message& end : p->ends) Send(p, end);
}

void LeaseWorld::Send(Process* p, Message message) {
  if (p->connection >= 0) {
    connections_[p->connection].requests.push_back(message);
  }
}

// Receives one answer. Answers about ended leases arrive in order, before
// answers to requests.
void LeaseWorld::Receive(Process* p) {
  Connection& c = connections_[p->connection];
  const Answer answer = c.answers.front();
  c.answers.pop_front();
  switch (answer.kind) {
    case Answer::kDone:
      p->ends.pop_front();
      break;
    case Answer::kRefused:
      p->phase = Phase::kIdle;
      break;
    case Answer::kGrant:
      if (answer.slabs != kWanted) Fail("a lease is not as large as asked for");
      p->phase = Phase::kGranted;
      p->lease = answer.lease;
      break;
    case Answer::kGranules:
      p->phase = Phase::kMapped;
      break;
  }
}

void LeaseWorld::GiveUp(Process* p) {
  if (!options_.no_giving_up) p->ends.push_back({Message::kGiveUp, p->request});
  p->phase = Phase::kIdle;
}

void LeaseWorld::Rejoin(Process* p) {
  Join(p);
  if (p->phase == Phase::kAsked) Send(p, {Message::kLease, p->request});
  if (p->phase == Phase::kFetching) Send(p, {Message::kGranules, p->lease});
}

void LeaseWorld::Die(Process* p) {
  ++deaths_;
  p->alive = false;
  if (p->connection >= 0) connections_[p->connection].open = false;
}

// --- The daemon, as SocketServer and PoolService ---

void LeaseWorld::Deliver(Connection* c) {
  if (c->requests.empty()) return CloseEnd(c);
  const Message message = c->requests.front();
  c->requests.pop_front();
  Handle(c, message);
}

void LeaseWorld::CloseEnd(Connection* c) {
  if (c->ticket != 0) pool_.Cancel(c->ticket);
  c->ticket = 0;
  for (uint32_t lease : std::exchange(c->unfetched, {})) {
    pool_.Return(engine_, LeaseId{lease}).IgnoreError();
  }
  c->process = -1;
  Execute();
}

void LeaseWorld::Handle(Connection* c, Message message) {
  const pid_t pid = processes_[c->process].pid;
  switch (message.kind) {
    case Message::kLease:
      if (c->given_up != 0 && c->given_up == message.value) return CloseEnd(c);
      c->ticket = ++last_ticket_;
      pool_.Lease(engine_, kWanted, c->ticket, kNow, {pid, message.value});
      return Execute();
    case Message::kGranules:
      return HandleGranules(c, message.value);
    case Message::kReturn:
      c->unfetched.erase(message.value);
      pool_.Return(engine_, LeaseId{message.value}).IgnoreError();
      Execute();
      return SendAnswer(c, {Answer::kDone, 0, 0});
    case Message::kGiveUp:
      for (Connection& other : connections_) {
        if (&other != c && other.process == c->process &&
            !options_.forgets_given_up) {
          other.given_up = message.value;
        }
      }
      pool_.GiveUp(engine_, {pid, message.value}).IgnoreError();
      Execute();
      return SendAnswer(c, {Answer::kDone, 0, 0});
    case Message::kEnd:
      return;
  }
}

void LeaseWorld::HandleGranules(Connection* c, uint32_t lease) {
  const auto granules = pool_.GranulesOf(engine_, LeaseId{lease}, 0, kWanted);
  if (!granules.ok()) {
    if (processes_[c->process].alive) {
      Fail(absl::StrCat("lease ", lease, " is no longer known"));
    }
    return;
  }
  if (options_.seen_late) SendAnswer(c, {Answer::kGranules, lease, 0});
  pool_.Seen(engine_, LeaseId{lease});
  Execute();
  c->unfetched.erase(lease);
  if (!options_.seen_late) SendAnswer(c, {Answer::kGranules, lease, 0});
}

void LeaseWorld::SendAnswer(Connection* c, Answer answer) {
  if (Lives()) c->answers.push_back(answer);
}

void LeaseWorld::GiveGrants(const slab::Effects& effects) {
  for (const slab::Refusal& refusal : effects.refusals) {
    for (Connection& c : connections_) {
      if (c.ticket != refusal.ticket) continue;
      c.ticket = 0;
      SendAnswer(&c, {Answer::kRefused, 0, 0});
    }
  }
  for (const slab::PoolState::Grant& grant : effects.grants) {
    const auto c = std::find_if(
        connections_.begin(), connections_.end(),
        [&](const Connection& other) { return other.ticket == grant.ticket; });
    if (c == connections_.end()) {
      pool_.Return(engine_, grant.lease).IgnoreError();
      continue;
    }
    for (Connection& other : connections_) {
      if (!options_.former_connection_returns) {
        other.unfetched.erase(Number(grant.lease));
      }
    }
    c->ticket = 0;
    c->unfetched.insert(Number(grant.lease));
    SendAnswer(&*c, {Answer::kGrant, Number(grant.lease),
                     static_cast<uint32_t>(grant.slabs.size())});
  }
}

void LeaseWorld::Bury(Process* p) {
  p->buried = true;
  const bool mapped =
      p->phase == Phase::kMapped || p->phase == Phase::kFetching;
  const auto words = [&] {
    return pool_.slabs().SlabsOf(engine_, LeaseId{p->lease}).size();
  };
  const size_t before = mapped ? words() : 0;
  pool_.Exited(p->pid, kNow);
  if (p->phase == Phase::kMapped && before != words()) {
    Fail("slabs that a dead process had mapped were zeroed at once");
  }
  Execute();
}

void LeaseWorld::Fill() {
  for (SlabId slab : std::exchange(filling_, {})) pool_.Zeroed(slab);
  Execute();
}

void LeaseWorld::Execute() {
  for (slab::Effects effects = pool_.TakeEffects(); !effects.empty();
       effects = pool_.TakeEffects()) {
    Publish(effects);
    for (SlabId slab : effects.fill) filling_.push_back(slab);
    // The driver lists dead processes until their deaths are known.
    if (effects.list_processes) {
      std::vector<pid_t> pids = {daemon_};
      for (const Process& p : processes_) {
        if (!p.buried) pids.push_back(p.pid);
      }
      Require(pool_.Listed(pids, daemon_));
    }
    GiveGrants(effects);
  }
}

void LeaseWorld::PublishSlab(const slab::SlabChange& change) {
  abi::SlabEntry& entry = table_.slabs()[Number(change.slab)];
  const uint64_t word = abi::SlabWord::Pack(change.word);
  const bool same = entry.word.load() == word;
  const bool tells = (same || change.asker.request != 0) && !options_.no_asker;
  const auto tell = [&] {
    if (tells && Lives()) {
      entry.asker.store(abi::LeaseAsker::Pack(change.asker));
    }
  };
  if (!options_.word_first) tell();
  if (!same && Lives()) entry.word.store(word);
  if (options_.word_first) tell();
}

void LeaseWorld::Publish(const slab::Effects& effects) {
  abi::TableHeader* header = table_.header();
  if (Lives()) {
    header->last_engine = pool_.last_engine();
    header->last_lease = pool_.slabs().last_lease();
    header->wanted_slabs = pool_.wanted_slabs();
  }
  for (const slab::SlabChange& change : effects.changes) PublishSlab(change);
  for (uint32_t slot : effects.vacant) {
    if (Lives()) table_.Write(slot, {});
  }
  for (slab::EngineId id : effects.records) {
    if (Lives()) table_.Write(pool_.SlotOf(id), pool_.Record(id));
  }
}

// --- Daemons end and begin ---

bool LeaseWorld::Lives() {
  if (deeds_left_ == UINT32_MAX) return true;
  if (deeds_left_ == 0) return false;
  --deeds_left_;
  return true;
}

void LeaseWorld::Crash() {
  ++crashes_;
  serves_ = false;
  deeds_left_ = UINT32_MAX;
  pool_ = slab::PoolState(pool_.geometry(), kSlabs);  // forgotten
  filling_.clear();
  // A process can still read the messages that were sent to it; after them it
  // reads the end of the connection.
  for (Connection& c : connections_) {
    c.requests.clear();
    c.ticket = 0;
    c.unfetched.clear();
    if (!c.open || c.process < 0) continue;
    Process& p = processes_[c.process];
    while (p.alive && !c.answers.empty()) Receive(&p);
    p.connection = -1;
  }
  connections_.clear();
}

void LeaseWorld::Restart() {
  const auto kept = abi::TableReader::Read(table_.header(), table_.bytes());
  if (!kept.ok()) return Fail(std::string(kept.status().message()));
  absl::StatusOr<slab::PoolState> adopted = slab::PoolState::Adopt(*kept, kNow);
  if (!adopted.ok()) return Fail(std::string(adopted.status().message()));
  pool_ = *std::move(adopted);
  serves_ = true;
  ++daemon_;
  Execute();
  if (Lives()) table_.header()->daemon_pid = static_cast<uint32_t>(daemon_);
  pool_.HoldBackFills();
  Execute();
  for (Process& p : processes_) {
    if (!p.alive) Bury(&p);
  }
}

// --- What may happen ---

bool LeaseWorld::IsOfDaemon(Act act) const {
  return act == Act::kDeliver || act == Act::kBury || act == Act::kFill ||
         act == Act::kRestart;
}

std::vector<LeaseWorld::Event> LeaseWorld::Enabled() const {
  std::vector<Event> events;
  for (uint8_t i = 0; i < kProcesses; ++i) {
    const Process& p = processes_[i];
    const auto add = [&](Act act) { events.push_back({act, i}); };
    if (!p.alive) {
      if (!p.buried && serves_) add(Act::kBury);
      continue;
    }
    if (deaths_ < options_.deaths) add(Act::kDie);
    const bool waits = p.phase == Phase::kAsked;
    if (p.connection < 0) {
      if (serves_) add(Act::kRejoin);
      if (waits) add(Act::kGiveUp);
      continue;
    }
    if (p.phase == Phase::kIdle && p.asked < options_.leases) add(Act::kAsk);
    if (p.phase == Phase::kGranted) add(Act::kFetch);
    if (p.phase == Phase::kMapped) add(Act::kReturn);
    if (!connections_[p.connection].answers.empty()) add(Act::kReceive);
    if (waits && drops_ < options_.drops) add(Act::kDrop);
  }
  for (uint8_t i = 0; i < connections_.size() && serves_; ++i) {
    const Connection& c = connections_[i];
    if (c.process < 0 || (c.requests.empty() && c.open)) continue;
    if (c.ticket == 0 || !c.open) events.push_back({Act::kDeliver, i});
  }
  if (serves_ && !filling_.empty()) events.push_back({Act::kFill, 0});
  if (!serves_) events.push_back({Act::kRestart, 0});
  if (crashes_ >= options_.crashes) return events;
  for (size_t i = 0, all = events.size(); i < all; ++i) {
    if (!IsOfDaemon(events[i].act)) continue;
    for (uint8_t deeds = 0; deeds <= kMostDeeds; ++deeds) {
      events.push_back({events[i].act, events[i].who, deeds});
    }
  }
  return events;
}

void LeaseWorld::Apply(Event event) {
  if (event.dies_after != Event::kLives) deeds_left_ = event.dies_after;
  Process* p = &processes_[event.who % kProcesses];
  switch (event.act) {
    case Act::kAsk:
      ++p->asked;
      p->request = options_.no_number ? 0 : p->asked;
      p->phase = Phase::kAsked;
      Send(p, {Message::kLease, p->request});
      break;
    case Act::kDeliver:
      Deliver(&connections_[event.who]);
      break;
    case Act::kReceive:
      Receive(p);
      break;
    case Act::kFetch:
      p->phase = Phase::kFetching;
      Send(p, {Message::kGranules, p->lease});
      break;
    case Act::kReturn:
      p->phase = Phase::kIdle;
      p->ends.push_back({Message::kReturn, p->lease});
      Send(p, p->ends.back());
      break;
    case Act::kDrop:
      ++drops_;
      connections_[p->connection].open = false;
      p->connection = -1;
      if (!options_.repeats_after_drop) GiveUp(p);
      break;
    case Act::kRejoin:
      Rejoin(p);
      break;
    case Act::kGiveUp:
      GiveUp(p);
      break;
    case Act::kDie:
      Die(p);
      break;
    case Act::kBury:
      Bury(p);
      break;
    case Act::kFill:
      Fill();
      break;
    case Act::kRestart:
      Restart();
      break;
  }
  if (event.dies_after != Event::kLives) Crash();
  CheckHeld();
}

// --- What must hold ---

void LeaseWorld::CheckHeld() {
  std::set<uint32_t> known;
  for (const Process& p : processes_) {
    if (!p.alive || p.phase == Phase::kIdle || p.phase == Phase::kAsked) {
      continue;
    }
    if (!known.insert(p.lease).second) {
      Fail(absl::StrCat("lease ", p.lease, " is granted twice"));
    }
    uint32_t slabs = 0;
    for (uint32_t s = 0; s < kSlabs; ++s) {
      const abi::SlabWord word =
          serves_ ? pool_.slabs().word(SlabId{s})
                  : abi::SlabWord::Unpack(table_.slabs()[s].word.load());
      slabs += word.state == SlabState::kFull && word.lease == p.lease;
    }
    if (slabs != kWanted) {
      Fail(absl::StrCat("lease ", p.lease, " has ", slabs,
                        " slabs, though its process holds it"));
    }
  }
}

// Lets the world settle without further deaths or lost patience.
void LeaseWorld::ComeToRest() {
  for (int round = 0; round < 60 && violation_.empty(); ++round) {
    if (!serves_) Apply({Act::kRestart, 0});
    for (uint8_t i = 0; i < kProcesses; ++i) {
      Process& p = processes_[i];
      if (!p.alive && !p.buried) Apply({Act::kBury, i});
      if (!p.alive) continue;
      if (p.connection < 0) Apply({Act::kRejoin, i});
      while (!connections_[p.connection].answers.empty()) {
        Apply({Act::kReceive, i});
      }
      if (p.phase == Phase::kGranted) Apply({Act::kFetch, i});
    }
    for (uint8_t i = 0; i < connections_.size(); ++i) {
      const Connection& c = connections_[i];
      while (c.process >= 0 && (!c.requests.empty() || !c.open) &&
             (c.ticket == 0 || !c.open)) {
        Apply({Act::kDeliver, i});
      }
    }
    Apply({Act::kFill, 0});
    pool_.Settle(kNow + slab::PoolState::kListNs * (round + 1),
                 [](slab::EngineId, SlabId) { return 0; });
    Execute();
  }
}

void LeaseWorld::CheckNothingLost() {
  pool_.slabs().CheckInvariants();
  for (uint32_t s = 0; s < kSlabs; ++s) {
    const abi::SlabWord word = pool_.slabs().word(SlabId{s});
    if (abi::SlabWord::Pack(word) != table_.slabs()[s].word.load()) {
      Fail(absl::StrCat("the table is wrong about slab ", s));
    }
    if (word.state == SlabState::kFree) continue;
    const bool known = std::any_of(
        processes_.begin(), processes_.end(), [&](const Process& p) {
          return p.alive && p.phase == Phase::kMapped && p.lease == word.lease;
        });
    // Slabs that a dead process had mapped belong to the engine until it ends.
    const bool of_dead = std::any_of(
        processes_.begin(), processes_.end(),
        [&](const Process& p) { return !p.alive && p.lease == word.lease; });
    if (!known && !of_dead) {
      Fail(absl::StrCat("slab ", s, " is lost: in state ",
                        static_cast<int>(word.state), ", lease ", word.lease));
    }
  }
}

std::string LeaseWorld::Settle() {
  ComeToRest();
  for (const Process& p : processes_) {
    if (p.alive && p.phase == Phase::kAsked) Fail("a request waits for ever");
  }
  if (violation_.empty()) CheckNothingLost();
  return violation_;
}

uint64_t LeaseWorld::Digest() {
  Hash hash;
  for (uint32_t s = 0; s < kSlabs; ++s) {
    hash.Add(abi::SlabWord::Pack(pool_.slabs().word(SlabId{s})));
    hash.Add(table_.slabs()[s].word.load());
    hash.Add(table_.slabs()[s].asker.load());
  }
  for (const Process& p : processes_) {
    hash.Add(uint64_t{p.alive} | uint64_t{p.buried} << 1 |
             static_cast<uint64_t>(p.phase) << 4 | uint64_t{p.asked} << 8 |
             static_cast<uint64_t>(p.connection + 1) << 16 |
             uint64_t{p.lease} << 32);
    for (const Message& m : p.ends) hash.Add(m.kind | uint64_t{m.value} << 8);
    hash.Add(1);
    hash.Add(pool_.slabs().UnseenOf(engine_, p.pid).size());
  }
  for (const Connection& c : connections_) {
    hash.Add(static_cast<uint64_t>(c.process + 1) | uint64_t{c.open} << 8 |
             uint64_t{c.ticket != 0} << 9 | uint64_t{c.given_up} << 16);
    for (const Message& m : c.requests) {
      hash.Add(m.kind | uint64_t{m.value} << 8);
    }
    for (const Answer& a : c.answers) hash.Add(a.kind | uint64_t{a.lease} << 8);
    for (uint32_t lease : c.unfetched) hash.Add(lease + 1'000);
    hash.Add(2);
  }
  hash.Add(uint64_t{serves_} | uint64_t{crashes_} << 8 |
           uint64_t{drops_} << 16 | uint64_t{deaths_} << 24 |
           uint64_t{filling_.size()} << 32);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    abi::EngineRecord record;
    Require(abi::CopyRecord(table_.engines()[slot], &record));
    hash.Add(static_cast<uint64_t>(record.state) |
             uint64_t{record.member_count} << 8 | uint64_t{record.id} << 32 |
             uint64_t{record.exited_count} << 16);
  }
  return hash.value();
}

}  // namespace fineserve::protocol
