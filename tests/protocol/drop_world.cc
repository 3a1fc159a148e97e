#include "tests/protocol/drop_world.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::protocol {
namespace {

using abi::Place;
using server::MoveBook;
using server::ParameterDrop;
using slab::EngineId;

constexpr uint64_t kDropRoundNs = 1'000'000'000;
// On average, one in this many steps may be a fault, or a write.
constexpr uint32_t kDropFaultPeriod = 16;
constexpr int kMostDropRounds = 200;  // until all has come to rest
constexpr uint32_t kContents = 2;     // that parameters may have

// A request waits for a second until an allocation's bytes are free.
constexpr uint64_t kAllocationBytes = 1 << 20;
constexpr uint64_t kCopyBytes = 2 * kAllocationBytes;
constexpr uint64_t kTurnNs = 100'000'000;
constexpr overload::DropRules kDropRules = {true, 300e3, 1};
overload::KvLoad LoadIn(bool burst, uint64_t dropped) {
  overload::KvLoad load = {.undropped = 40 * kAllocationBytes,
                           .dropped = dropped};
  if (burst) {
    load.used = load.undropped;
    load.head = kAllocationBytes;
    load.queued = 10 * kAllocationBytes;
  }
  return load;
}
overload::Terms DropTerms() {
  return kDropRules.TermsOf(kCopyBytes, 1'000'000, 100'000);
}
overload::Replica ReplicaWith(const overload::KvLoad& load) {
  overload::Replica r;
  r.kv = load;
  r.fingerprint = 1;
  r.domain = 1;
  r.loans = overload::DropRules::LoansOf(load.dropped, DropTerms());
  r.waiting = r.running = 10;
  r.freed_per_us = 1e-6 * kAllocationBytes;
  r.decode_us = r.full_us = [](const sched::PeerReads&) { return 60e3; };
  return r;
}

MoveBook::MoverId MoverBehind(size_t connection) {
  return MoveBook::MoverId{connection + 1};
}

// The engine at its GPU's daemon.
constexpr EngineId kReplica{1};

}  // namespace

DropWorld::DropWorld(const DropOptions& options) : options_(options) {
  for (size_t r = 0; r < kReplicas; ++r) {
    Restart(r);
    StartProcess(r);
  }
}

void DropWorld::StartProcess(size_t r) {
  Process& p = processes_[r];
  p = {};
  p.pid = ++last_pid_;
  p.wrote = 1;
  for (Allocation& one : p.allocations) {
    one.memory = memory_.size();
    memory_.push_back(p.wrote);
  }
}

uint64_t DropWorld::Process::dropped_bytes() const {
  uint64_t bytes = 0;
  for (const Allocation& one : allocations) {
    bytes += one.dropped ? kAllocationBytes : 0;
  }
  return bytes;
}

bool DropWorld::Process::is_read() const {
  return std::any_of(
      allocations.begin(), allocations.end(),
      [](const Allocation& one) { return !one.readers.empty(); });
}

// --- What may happen ---

void DropWorld::Happen(uint32_t random) {
  dice_ = random;
  const bool begins = !settles_;
  const bool is_rare = begins && (random >> 20) % kDropFaultPeriod == 0;
  for (size_t r = 0; r < kReplicas; ++r) {
    const Process& p = processes_[r];
    const bool served = books_[r] != nullptr;
    Allow(!served, &DropWorld::Restart, r);
    Allow(is_rare && served && crashes_ < options_.crashes, &DropWorld::Crash,
          r);
    const bool may_ask = begins && served && asked_.size() < 2;
    Allow(may_ask && options_.has_operator, &DropWorld::AskDrop, r);
    Allow(may_ask && options_.has_operator, &DropWorld::AskBack, r);
    Allow(is_rare && served && asked_.size() < 2, &DropWorld::AskOut, r);
    Allow(options_.has_policy && begins && is_rare, &DropWorld::ChangeLoad, r);
    Allow(options_.has_policy && served, &DropWorld::LetPolicyLook, r);
    Allow(!p.alive, &DropWorld::Start, r);
    if (!p.alive) continue;
    const bool waits = p.doing == Doing::kWaits;
    const bool reads =
        p.connection &&
        (!IsConnected(p) || !connections_[*p.connection].down.empty());
    Allow(begins && p.gate_open && !p.in_step, &DropWorld::BeginStep, r);
    Allow(p.in_step, &DropWorld::EndStep, r);
    Allow(!p.connection && served && waits, &DropWorld::Connect, r);
    Allow(reads && (waits || p.doing == Doing::kCompares), &DropWorld::Receive,
          r);
    Allow(p.doing == Doing::kCollects, &DropWorld::Collect, r);
    Allow(p.doing == Doing::kSwapsIn, &DropWorld::SwapIn, r);
    Allow(p.doing == Doing::kMakes, &DropWorld::Make, r);
    Allow(p.doing == Doing::kSwapsOut, &DropWorld::SwapOut, r);
    Allow(p.doing == Doing::kRecalls, &DropWorld::AwaitReaders, r);
    Allow((is_rare || settles_) && p.doing == Doing::kRecalls,
          &DropWorld::GiveUpReaders, r);
    Allow(waits && p.lender != 0, &DropWorld::Tend, r);
    Allow(p.former_lender != 0 && !(options_.says_once && p.has_said),
          &DropWorld::SayEnd, r);
    Allow((p.thaws || p.doing == Doing::kRecalls) && p.is_read() &&
              !(options_.says_once && p.has_asked_back),
          &DropWorld::AskBackReaders, r);
    Allow(is_rare && !p.thaws, &DropWorld::Thaw, r);
    Allow(p.thaws && p.place == Place::kGpu && p.gate_open, &DropWorld::Write,
          r);
    Allow(p.place == Place::kHost && !p.needs, &DropWorld::Touch, r);
    Allow(p.is_read(), &DropWorld::TakeBackEnded, r);
    Allow(is_rare && IsConnected(p) && drops_ < options_.drops,
          &DropWorld::Drop, r);
    Allow(is_rare && deaths_ < options_.deaths, &DropWorld::Die, r);
  }
  for (size_t c = 0; c < connections_.size(); ++c) {
    const Connection& at = connections_[c];
    Allow(books_[at.replica] != nullptr && at.handled &&
              (!at.up.empty() || !at.open),
          &DropWorld::Deliver, c);
  }
  if (Choose(random)) Check();
}

bool DropWorld::IsConnected(const Process& p) const {
  return p.connection && connections_[*p.connection].open;
}

// True if the process that is asked now does not answer.
bool DropWorld::IsSilent() {
  if (settles_ || silences_ >= options_.silences || dice_ % 7 != 0) {
    return false;
  }
  ++silences_;
  return true;
}

DropWorld::Process* DropWorld::Living(uint32_t pid) {
  for (Process& p : processes_) {
    if (p.alive && p.pid == pid) return &p;
  }
  return nullptr;
}

// --- A process's program ---

void DropWorld::BeginStep(size_t r) {
  processes_[r].in_step = true;
  for (Allocation& one : processes_[r].allocations) {
    one.step_memory = *one.memory;
  }
}

void DropWorld::EndStep(size_t r) { processes_[r].in_step = false; }

void DropWorld::Thaw(size_t r) {
  processes_[r].thaws = true;
  processes_[r].has_asked_back = false;
  if (processes_[r].drops) processes_[r].recalled = true;
}

// Writes the thawed parameters, and freezes them again. Requires that no step
// runs, because the step's own thread writes.
void DropWorld::Write(size_t r) {
  Process& p = processes_[r];
  const bool is_apart =
      !p.drops && (!p.is_read() || options_.writes_while_read);
  if (!is_apart || p.in_step) return;
  p.wrote = 1 + dice_ % kContents;
  for (const Allocation& one : p.allocations) memory_[*one.memory] = p.wrote;
  p.thaws = false;
  ++written_;
}

void DropWorld::Touch(size_t r) {
  processes_[r].needs = true;
  if (IsConnected(processes_[r]) && processes_[r].doing == Doing::kWaits) {
    Report(r, /*is_needed=*/true);
  }
}

// --- A process that reads: its mover ---

void DropWorld::Obey(size_t r, const Message& order) {
  Process& p = processes_[r];
  p.order = order.order;
  p.order_to = order.to;
  switch (order.to) {
    case Place::kDropped:
      return BeginDrop(r, order.drop);
    case Place::kGpu:
      if (p.place == Place::kDropped) return BeginRestore(r);
      ComeBack(r);
      return Result(r, true);
    case Place::kHost:
      if (p.place == Place::kHost) return Result(r, true);
      if (p.place == Place::kDropped) return BeginRestore(r);
      return AskReadersBack(r);
    case Place::kAtRest:
      return Fail("an engine of one process is ordered to rest");
  }
}

void DropWorld::BeginDrop(size_t r, const ParameterDrop& drop) {
  Process& p = processes_[r];
  const bool reads = p.place == Place::kDropped;
  const bool has_lender = reads && p.lender == drop.lender.pid;
  if (reads ? !has_lender : p.place != Place::kGpu || p.former_lender != 0) {
    return Result(r, false);
  }
  if (reads && p.dropped_bytes() >= drop.bytes) return Result(r, true);
  if (p.thaws || (p.drops && p.recalled)) return Result(r, false);
  if (!p.drops) p.recalled = false;
  p.drops = true;
  p.lender = drop.lender.pid;
  p.drop_bytes = drop.bytes;
  Take(&p);
  p.doing = Doing::kCollects;
}

void DropWorld::Take(Process* p) {
  uint64_t bytes = p->dropped_bytes();
  for (Allocation& one : p->allocations) {
    const bool lends = !one.readers.empty() && !options_.drops_on_both_sides;
    if (bytes >= p->drop_bytes || !one.has_own() || lends) continue;
    one.taken = true;
    bytes += kAllocationBytes;
  }
}

// Collects the lender's memory. The lender records its reader before it
// answers.
void DropWorld::Collect(size_t r) {
  Process& p = processes_[r];
  Process* const lender = Living(p.lender);
  const bool silent = IsSilent();
  if (lender == nullptr || (silent && dice_ % 2 == 0)) return AbandonDrop(r);
  if (lender->thaws || lender->place == Place::kHost) return AbandonDrop(r);
  bool lends = false;
  for (size_t i = 0; i < p.allocations.size(); ++i) {
    Allocation& one = p.allocations[i];
    Allocation& its = lender->allocations[i];
    if (!one.taken) continue;
    one.taken = its.has_own() || options_.drops_on_both_sides;
    if (!one.taken) continue;
    its.readers.insert(p.pid);
    one.next = its.memory;
    lends = true;
  }
  if (!lends || silent || !IsConnected(p)) return AbandonDrop(r);
  p.doing = options_.compares_nothing ? Doing::kSwapsIn : Doing::kCompares;
  if (options_.compares_nothing) return;
  connections_[*p.connection].up.push_back({Message::kCompare});
}

void DropWorld::AbandonDrop(size_t r) {
  Process& p = processes_[r];
  for (Allocation& one : p.allocations) {
    one.next.reset();
    one.taken = false;
  }
  p.drops = p.place == Place::kDropped;
  if (!p.drops) {
    p.former_lender = std::exchange(p.lender, 0);
    p.has_said = false;
  }
  ++refused_;
  Result(r, false);
}

// Maps the lender's memory, with the gate closed and the context's work done.
void DropWorld::SwapIn(size_t r) {
  Process& p = processes_[r];
  if (p.in_step && !options_.maps_before_the_gate) return;
  for (Allocation& one : p.allocations) {
    if (!one.taken) continue;
    one.memory = std::exchange(one.next, absl::nullopt);
    one.taken = false;
    one.dropped = true;
  }
  p.place = Place::kDropped;
  ++dropped_;
  Result(r, true);
}

void DropWorld::BeginRestore(size_t r) { processes_[r].doing = Doing::kMakes; }

// Makes and fills new memory while the program still reads the same bytes from
// the lender.
void DropWorld::Make(size_t r) {
  Process& p = processes_[r];
  const bool may_lack = !settles_ || options_.has_policy;
  if (may_lack && shortages_ < options_.shortages && dice_ % 5 == 0) {
    ++shortages_;
    return EndRestore(r, false);
  }
  for (Allocation& one : p.allocations) {
    if (!one.dropped) continue;
    one.next = memory_.size();
    memory_.push_back(memory_[*one.memory]);
  }
  p.doing = Doing::kSwapsOut;
}

void DropWorld::SwapOut(size_t r) {
  Process& p = processes_[r];
  if (p.in_step && !options_.maps_before_the_gate) return;
  for (Allocation& one : p.allocations) {
    if (one.dropped) one.memory = std::exchange(one.next, absl::nullopt);
    one.dropped = false;
  }
  p.place = Place::kGpu;
  p.drops = false;
  p.former_lender = std::exchange(p.lender, 0);
  p.has_said = false;
  ++restored_;
  EndRestore(r, true);
}

// Ends a restoration. The process was ordered to restore or to leave, or
// restores by itself.
void DropWorld::EndRestore(size_t r, bool done) {
  Process& p = processes_[r];
  if (p.order == 0) {
    p.doing = Doing::kWaits;
    if (done) Report(r, /*is_needed=*/false);
    return;
  }
  if (done && p.order_to == Place::kHost) return AskReadersBack(r);
  Result(r, done);
}

void DropWorld::Tend(size_t r) {
  Process& p = processes_[r];
  const bool ended = Living(p.lender) == nullptr && !options_.misses_the_end;
  if (ended || p.recalled) BeginRestore(r);
}

void DropWorld::SayEnd(size_t r) {
  Process& p = processes_[r];
  Process* const lender = Living(p.former_lender);
  p.has_said = true;
  if (lender != nullptr && IsSilent()) {
    if (options_.says_once) p.former_lender = 0;
    return;
  }
  if (lender != nullptr) {
    for (Allocation& one : lender->allocations) one.readers.erase(p.pid);
  }
  p.former_lender = 0;
}

// --- A process that lends ---

void DropWorld::AskReadersBack(size_t r) {
  processes_[r].doing = Doing::kRecalls;
  processes_[r].has_asked_back = false;
}

void DropWorld::AskBackReaders(size_t r) {
  Process& p = processes_[r];
  p.has_asked_back = true;
  for (const Allocation& one : p.allocations) {
    for (const uint32_t pid : one.readers) {
      Process* const reader = Living(pid);
      if (reader != nullptr && !IsSilent()) reader->recalled = true;
    }
  }
}

void DropWorld::TakeBackEnded(size_t r) {
  for (Allocation& one : processes_[r].allocations) {
    std::erase_if(one.readers,
                  [&](uint32_t pid) { return Living(pid) == nullptr; });
  }
}

// --- Its way to the host and back ---

void DropWorld::AwaitReaders(size_t r) {
  if (!processes_[r].is_read() || options_.leaves_readers) GiveUpReaders(r);
}

void DropWorld::GiveUpReaders(size_t r) { Leave(r); }

// Leaves the GPU. Memory that another process reads stays on the GPU.
void DropWorld::Leave(size_t r) {
  Process& p = processes_[r];
  if (p.in_step) {
    p.doing = Doing::kRecalls;
    return;
  }
  p.gate_open = false;
  p.place = Place::kHost;
  for (Allocation& one : p.allocations) {
    one.kept = memory_[*one.memory];
    if (one.readers.empty() || options_.leaves_readers) one.memory.reset();
  }
  ++left_;
  Result(r, true);
}

void DropWorld::ComeBack(size_t r) {
  Process& p = processes_[r];
  if (p.place != Place::kHost) return;
  for (Allocation& one : p.allocations) {
    if (one.memory) continue;
    one.memory = memory_.size();
    memory_.push_back(one.kept);
  }
  p.place = Place::kGpu;
  p.gate_open = true;
  p.needs = false;
}

// --- Its connection ---

void DropWorld::Report(size_t r, bool is_needed) {
  Process& p = processes_[r];
  Message message = {Message::kReport};
  abi::MoveReport& report = message.report;
  report.place = p.place;
  report.order = p.order;
  report.can_rest = 1;
  report.need = is_needed ? abi::Need::kReturn : abi::Need::kNone;
  report.moving_bytes = p.place == Place::kGpu ? 1 : 0;
  report.out_bytes = p.place == Place::kHost ? 1 : p.dropped_bytes();
  report.frozen_mib = kCopyBytes >> 20;
  if (IsConnected(p)) connections_[*p.connection].up.push_back(message);
}

void DropWorld::Result(size_t r, bool done) {
  Process& p = processes_[r];
  p.doing = Doing::kWaits;
  Report(r, /*is_needed=*/p.needs);
  if (IsConnected(p)) {
    connections_[*p.connection].up.back().report.failed = !done;
  }
  p.order = 0;
}

void DropWorld::Connect(size_t r) {
  Process& p = processes_[r];
  p.connection = connections_.size();
  connections_.push_back({r, p.pid});
  Report(r, p.needs);
}

void DropWorld::Receive(size_t r) {
  Process& p = processes_[r];
  if (!IsConnected(p)) return LoseConnection(r);
  Connection& c = connections_[*p.connection];
  const Message message = c.down.front();
  if (message.kind == Message::kOrder && p.doing != Doing::kWaits) {
    return Fail("a mover has two orders");
  }
  c.down.pop_front();
  if (message.kind == Message::kOrder) return Obey(r, message);
  if (!message.equal) return AbandonDrop(r);
  p.doing = Doing::kSwapsIn;
}

void DropWorld::LoseConnection(size_t r) {
  Process& p = processes_[r];
  p.connection.reset();
  if (p.doing == Doing::kCompares) AbandonDrop(r);
  p.order = 0;
}

void DropWorld::Drop(size_t r) {
  ++drops_;
  connections_[*processes_[r].connection].open = false;
}

void DropWorld::Die(size_t r) {
  ++deaths_;
  processes_[r].alive = processes_[r].in_step = false;
  for (Connection& c : connections_) {
    if (c.pid == processes_[r].pid) c.open = false;
  }
}

void DropWorld::Start(size_t r) { StartProcess(r); }

// --- The daemons, as SocketServer ---

void DropWorld::Deliver(size_t number) {
  Connection& c = connections_[number];
  MoveBook& book = *books_[c.replica];
  if (c.up.empty()) {
    c.handled = false;
    orders_.erase(number);
    book.Gone(MoverBehind(number));
    return CarryOut(c.replica);
  }
  for (size_t former = 0; former < number; ++former) {
    Connection& at = connections_[former];
    if (at.replica != c.replica || !at.handled) continue;
    at.up.clear();
    Deliver(former);
  }
  const Message message = c.up.front();
  c.up.pop_front();
  if (message.kind == Message::kCompare) {
    const Process& p = processes_[c.replica];
    const auto differs = [&](const Allocation& one) {
      return one.taken &&
             (!one.next || memory_[*one.memory] != memory_[*one.next]);
    };
    c.down.push_back({Message::kCompared});
    c.down.back().equal =
        p.pid == c.pid &&
        std::none_of(p.allocations.begin(), p.allocations.end(), differs);
    return;
  }
  const auto order = orders_.find(number);
  if (order != orders_.end() && order->second == message.report.order) {
    orders_.erase(order);
  }
  book.Report(MoverBehind(number), kReplica, message.report);
  CarryOut(c.replica);
}

void DropWorld::CarryOut(size_t r) {
  for (const MoveBook::Order& order : books_[r]->TakeOrders()) {
    const auto number = static_cast<uint64_t>(order.mover) - 1;
    if (!orders_.emplace(number, order.number).second) {
      Fail("a mover has two orders");
    }
    Message message = {Message::kOrder, {}, order.number, order.to};
    message.drop = order.drop;
    connections_[number].down.push_back(message);
  }
  for (const MoveBook::Answer& answer : books_[r]->TakeAnswers()) {
    if (asked_.erase(static_cast<uint64_t>(answer.asker)) == 0) {
      Fail("an answer without a question");
    }
  }
}

void DropWorld::Ask(size_t r, Place to, const ParameterDrop& drop) {
  asked_[++last_asker_] = r;
  books_[r]->Ask(MoveBook::AskerId{last_asker_}, kReplica, to, drop);
  CarryOut(r);
}

void DropWorld::AskDrop(size_t r) {
  ParameterDrop drop;
  drop.lender.pid = processes_[1 - r].pid;
  drop.bytes = dice_ % 3 == 0 ? UINT64_MAX : kAllocationBytes;
  Ask(r, Place::kDropped, drop);
}

void DropWorld::AskOut(size_t r) { Ask(r, Place::kHost); }

void DropWorld::AskBack(size_t r) { Ask(r, Place::kGpu); }

void DropWorld::Crash(size_t r) {
  ++crashes_;
  books_[r].reset();
  for (size_t c = 0; c < connections_.size(); ++c) {
    if (connections_[c].replica != r) continue;
    connections_[c].open = connections_[c].handled = false;
    connections_[c].down.clear();
    orders_.erase(c);
  }
  std::erase_if(asked_, [&](const auto& ask) { return ask.second == r; });
}

void DropWorld::Restart(size_t r) {
  books_[r] = std::make_unique<MoveBook>(&clock_);
  turns_[r] = std::make_unique<overload::DropTurns>(
      kDropRules, std::vector<std::string>{"replica"},
      static_cast<sched::Micros>(clock_.NowNs() / 1000));
}

// --- Their policy, as AdmissionService ---

void DropWorld::ChangeLoad(size_t r) { bursts_[r] = !bursts_[r]; }

void DropWorld::LetPolicyLook(size_t r) {
  clock_.AdvanceNs(kTurnNs * (1 + dice_ % 10));  // others came between
  const auto now = static_cast<sched::Micros>(clock_.NowNs() / 1000);
  const auto dropped = books_[r]->DroppedOf(kReplica);
  const overload::DropTurns::Seen seen = {
      LoadIn(bursts_[r] && !settles_, dropped.bytes), dropped.moves,
      dropped.trouble, overload::DropRules::ShareOf(dropped.of_bytes)};
  const double chance = (dice_ >> 8) % 100 / 100.;
  switch (turns_[r]->Due(0, seen, chance, now)) {
    case overload::Act::kNothing:
      return;
    case overload::Act::kDrop:
      if (!PolicyDrops(r)) return;
      has_restored_[r] = false;
      ++ordered_drops_;
      break;
    case overload::Act::kRestore:
      if (options_.restores_once && has_restored_[r]) return;
      if (!books_[r]->Restore(kReplica)) return;
      has_restored_[r] = true;
      ++ordered_restores_;
      break;
  }
  turns_[r]->Ordered(0, now);
  CarryOut(r);
}

// Decides by what both scoreboards say now. They may say something else when
// the order arrives.
bool DropWorld::PolicyDrops(size_t r) {
  const Process& other = processes_[1 - r];
  std::vector<overload::Replica> replicas = {
      ReplicaWith(LoadIn(true, books_[r]->DroppedOf(kReplica).bytes))};
  if (other.alive) replicas.push_back(ReplicaWith(LoadIn(false, 0)));
  const auto choice = turns_[r]->Choose(
      0, replicas, DropTerms(), /*before=*/static_cast<uint32_t>(r),
      static_cast<sched::Micros>(clock_.NowNs() / 1000));
  if (!choice) return false;
  ParameterDrop drop;
  drop.lender.pid = other.pid;
  drop.bytes = choice->bytes;
  return books_[r]->Drop(kReplica, drop);
}

// --- What must hold ---

void DropWorld::Check() {
  for (size_t r = 0; r < kReplicas; ++r) {
    const Process& p = processes_[r];
    if (!p.alive) continue;
    const Process* const lender = Living(p.lender);
    mutual_ += p.dropped_bytes() != 0 && lender != nullptr &&
               lender->dropped_bytes() != 0;
    for (size_t i = 0; i < p.allocations.size(); ++i) {
      const Allocation& one = p.allocations[i];
      if (p.in_step && one.memory != one.step_memory) {
        Fail("memory goes from under a step");
      }
      if (p.gate_open && (!one.memory || memory_[*one.memory] != p.wrote)) {
        Fail("a process computes with parameters that it did not write");
      }
      if (!one.dropped || lender == nullptr) continue;
      if (lender->allocations[i].dropped) {
        Fail("parameters are dropped on both sides");
      } else if (lender->allocations[i].memory != one.memory) {
        Fail("a process reads what is no longer the other's");
      }
    }
  }
}

bool DropWorld::Rests() const {
  const bool all_read = std::all_of(
      connections_.begin(), connections_.end(), [](const Connection& c) {
        return !c.handled || (c.up.empty() && c.down.empty() && c.open);
      });
  return all_read && asked_.empty() &&
         std::all_of(processes_.begin(), processes_.end(), [&](const auto& p) {
           const bool goes_back =
               p.lender != 0 &&
               (p.recalled || std::none_of(processes_.begin(), processes_.end(),
                                           [&](const Process& other) {
                                             return other.alive &&
                                                    other.pid == p.lender;
                                           }));
           return p.alive && IsConnected(p) && p.doing == Doing::kWaits &&
                  !p.in_step && !p.thaws && !p.needs && !goes_back &&
                  p.former_lender == 0 && p.place != Place::kHost &&
                  !(options_.has_policy && p.place == Place::kDropped);
         });
}

std::string DropWorld::Settle() {
  settles_ = true;
  // Allows one more shortage, after which the policy orders again.
  shortages_ = std::max(options_.shortages, 1u) - 1;
  std::mt19937 random(0);
  for (int i = 0; i < kMostDropRounds && violation_.empty(); ++i) {
    for (int n = 40; n-- > 0 && violation_.empty();) {
      Happen(static_cast<uint32_t>(random()));
    }
    clock_.AdvanceNs(kDropRoundNs);
    if (Rests()) break;
  }
  if (violation_.empty()) CheckRest();
  return violation_;
}

void DropWorld::CheckRest() {
  if (!asked_.empty()) return Fail("a question without an answer");
  for (size_t r = 0; r < kReplicas; ++r) {
    const Process& p = processes_[r];
    const std::string who = absl::StrCat("replica ", r, ": ");
    if (p.lender != 0 && Living(p.lender) == nullptr) {
      Fail(who + "a promised restore does not come");
    }
    if (options_.has_policy && p.place == Place::kDropped) {
      Fail(who + "no burst lasts, and it does not get its parameters back");
    }
    if (p.lender != 0 && p.recalled) Fail(who + "a recall has no effect");
    if (p.thaws) Fail(who + "it waits for ever to write its parameters");
    for (const Allocation& one : p.allocations) {
      for (const uint32_t pid : one.readers) {
        const Process* const reader = Living(pid);
        if (reader == nullptr || reader->lender != p.pid) {
          Fail(who + "it lends to a process that does not read");
        }
      }
    }
  }
  if (!Rests()) return Fail("it does not come to rest");
  if (!orders_.empty()) return Fail("an order without a result");
}

}  // namespace fineserve::protocol
