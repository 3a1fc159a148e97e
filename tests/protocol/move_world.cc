#include "tests/protocol/move_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fineserve::protocol {
namespace {

using abi::Place;
using server::MoveBook;
using slab::EngineId;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kStayNs = 10 * kSecondNs;
// On average, one in this many steps may be a fault or new content, so that
// there is time for moves between them.
constexpr uint32_t kRarePeriod = 16;
constexpr size_t kMostUnread = 3;  // reports; a socket's buffer ends, too
constexpr int kMostRounds = 400;   // until all has come to rest
constexpr uint64_t kFirstContent = 1;
constexpr uint64_t kNoContent = 0;  // of new memory

EngineId Number(size_t engine) {
  return EngineId{static_cast<uint32_t>(engine) + 1};
}

MoveBook::MoverId MoverOf(size_t connection) {
  return MoveBook::MoverId{connection + 1};
}

}  // namespace

// Replicas begin with equal contents.
MoveWorld::MoveWorld(const MoveOptions& options)
    : options_(options), room_(options.room) {
  clock_.AdvanceNs(kSecondNs);
  for (size_t engine = 0; engine < options_.processes.size(); ++engine) {
    for (uint32_t i = 0; i < options_.processes[engine]; ++i) {
      Process& p = processes_.emplace_back();
      p.engine = engine;
      p.pid = 100 + static_cast<pid_t>(processes_.size());
      p.wrote = kFirstContent;
      p.memory = memory_.size();
      memory_.push_back(p.wrote);
    }
    const size_t count = options_.processes[engine];
    const size_t first = processes_.size() - count;
    for (size_t i = 0; options_.shares && count > 1 && i < count; ++i) {
      Process& exporter = processes_[first + (i + 1) % count];
      processes_[first + i].exporter = first + (i + 1) % count;
      processes_[first + i].opened = exporter.memory;
      exporter.borrower = first + i;
    }
  }
  OpenDaemon();
  // An engine that does not know of all its processes would leave without the
  // unknown ones.
  for (size_t i = 0; options_.shares && i < processes_.size(); ++i) {
    Connect(i);
    Deliver(i);
  }
}

void MoveWorld::OpenDaemon() {
  ++daemons_;
  book_ = std::make_unique<MoveBook>(&clock_);
  contents_ = std::make_unique<store::Contents>();
}

// --- What may happen ---

void MoveWorld::Happen(uint32_t random) {
  dice_ = random;
  const bool begins = !settles_;
  const bool is_rare = begins && (random >> 20) % kRarePeriod == 0;
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Process& p = processes_[i];
    Allow(!p.alive && !p.buried && book_ != nullptr, &MoveWorld::Bury, i);
    Allow(settles_ && p.stopped, &MoveWorld::GoOn, i);
    if (!p.alive || p.stopped) continue;
    const bool connected = p.connection.has_value();
    const bool reads = connected && (!IsConnected(p) ||
                                     !connections_[*p.connection].down.empty());
    const bool is_ordered_out =
        IsConnected(p) && reads && p.doing == Doing::kWaits &&
        connections_[*p.connection].down.front().kind == Message::kOrder &&
        connections_[*p.connection].down.front().to !=
            (p.place == Place::kHost ? Place::kAtRest : Place::kGpu);
    Allow(reads, &MoveWorld::Receive, i);
    Allow(!connected && book_ != nullptr, &MoveWorld::Connect, i);
    Allow(p.needs && !p.rung && !(options_.rings_once && p.has_rung),
          &MoveWorld::Ring, i);
    Allow(p.rung && IsWaiting(p), &MoveWorld::AnswerBell, i);
    Allow(!connected && book_ == nullptr && p.rung && p.place == Place::kHost,
          &MoveWorld::HelpAlone, i);
    Allow(!connected && p.place == Place::kAtRest, &MoveWorld::GoOnAlone, i);
    Allow(is_rare && p.gate_open && p.opened && writes_ < options_.writes,
          &MoveWorld::WriteOpened, i);
    Allow(is_rare && p.gate_open && p.memory && writes_ < options_.writes,
          &MoveWorld::Write, i);
    Allow(begins && !p.gate_open && !p.needs, &MoveWorld::Touch, i);
    Allow(begins && is_ordered_out, &MoveWorld::Refuse, i);
    Allow(is_rare && IsConnected(p) && drops_ < options_.drops,
          &MoveWorld::GiveUp, i);
    Allow(is_rare && deaths_ < options_.deaths, &MoveWorld::Die, i);
    Allow(is_rare && p.place != Place::kGpu && stops_ < options_.stops,
          &MoveWorld::Stop, i);
  }
  for (size_t c = 0; c < connections_.size(); ++c) {
    const Connection& at = connections_[c];
    Allow(book_ != nullptr && at.handled && (!at.up.empty() || !at.open),
          &MoveWorld::Deliver, c);
  }
  for (size_t e = 0; book_ && e < options_.processes.size(); ++e) {
    Allow(begins && asked_.size() < 2, &MoveWorld::AskOut, e);
    Allow(begins && asked_.size() < 2, &MoveWorld::AskBack, e);
    Allow(begins && wanted_.count(e) == 0, &MoveWorld::Leave, e);
    Allow(begins || wanted_.count(e) != 0, &MoveWorld::Need, e);
  }
  Allow(!jobs_.empty(), &MoveWorld::RunJob, 0);
  Allow(!old_fills_.empty(), &MoveWorld::FinishOldFill, 0);
  Allow(begins, &MoveWorld::Wait, 0);
  Allow(is_rare && book_ && crashes_ < options_.crashes, &MoveWorld::Crash, 0);
  Allow(!book_, &MoveWorld::Restart, 0);
  if (Choose(random)) Check();
}

bool MoveWorld::IsConnected(const Process& p) const {
  return p.connection && connections_[*p.connection].open;
}

// True if the process waits for an order and has none unread. poll() reports an
// order before the bell.
bool MoveWorld::IsWaiting(const Process& p) const {
  return IsConnected(p) && p.doing == Doing::kWaits &&
         connections_[*p.connection].down.empty() &&
         connections_[*p.connection].up.size() < kMostUnread;
}

bool MoveWorld::HasRoom() const {
  uint32_t used = 0;
  for (const Process& p : processes_) {
    used += p.alive && p.memory.has_value();
    used += p.alive && p.filled.has_value();
  }
  return used < room_;
}

// --- A process, as Mover ---

void MoveWorld::Write(size_t i) {
  Process& p = processes_[i];
  p.wrote = kFirstContent + ++writes_;
  memory_[*p.memory] = p.wrote;
}

void MoveWorld::WriteOpened(size_t i) {
  const Process& p = processes_[i];
  Process& exporter = processes_[*p.exporter];
  exporter.wrote = kFirstContent + ++writes_;
  memory_[*p.opened] = exporter.wrote;
}

void MoveWorld::Touch(size_t i) { processes_[i].needs = true; }

void MoveWorld::Ring(size_t i) {
  processes_[i].rung = processes_[i].has_rung = true;
}

void MoveWorld::AnswerBell(size_t i) {
  Process& p = processes_[i];
  p.rung = false;
  if (p.place != Place::kGpu) Report(&p, /*is_needed=*/true);
}

void MoveWorld::Report(Process* p, bool is_needed) {
  if (!IsConnected(*p)) return;  // the next connection begins with it
  Message message = {Message::kReport};
  p->report.place = p->place;
  p->report.need = is_needed ? abi::Need::kReturn : abi::Need::kNone;
  p->report.can_rest = 1;
  (p->memory ? p->report.moving_bytes : p->report.out_bytes) = 1;
  message.report = p->report;
  Connection& c = connections_[*p->connection];
  if (std::exchange(c.is_first, false)) {
    message.copy = p->copy;
    message.claim = p->claim;
  }
  c.up.push_back(message);
  p->report = {};
}

void MoveWorld::Result(Process* p, bool done) {
  p->report.failed = !done;
  p->doing = Doing::kWaits;
  Report(p, /*is_needed=*/false);
}

void MoveWorld::Connect(size_t i) {
  Process& p = processes_[i];
  p.connection = connections_.size();
  connections_.push_back({i});
  Report(&p, /*is_needed=*/false);
}

void MoveWorld::Receive(size_t i) {
  Process& p = processes_[i];
  if (!IsConnected(p)) return LoseConnection(&p);
  Connection& c = connections_[*p.connection];
  const Message message = c.down.front();
  c.down.pop_front();
  if (message.kind == Message::kOrder) return Obey(&p, message);
  if (message.order != p.report.order)
    return Fail("an answer to another order");
  if (message.kind == Message::kCopied) return Copied(&p, message);
  if (!message.ok) return FillItself(&p);
  Return(&p, *p.filled);
}

void MoveWorld::Obey(Process* p, const Message& order) {
  p->report.order = order.order;
  if (order.to == p->place) return Result(p, true);
  p->goes_on = order.to == Place::kGpu;
  if (order.to == Place::kHost) return Leave(p);
  if (p->place == Place::kHost) return ComeBack(p);
  if (order.to == Place::kGpu) return Result(p, GoOn(p));
  Rest(p);
  TellExporter(p);
  Result(p, true);
}

void MoveWorld::Rest(Process* p) {
  p->gate_open = false;
  p->place = Place::kAtRest;
  p->may_be_old = false;
}

// An exporter that is silent reads the question later.
void MoveWorld::TellExporter(Process* p) {
  if (!p->exporter || !processes_[*p->exporter].alive) return;
  Process& exporter = processes_[*p->exporter];
  if (IsSilent()) {
    disturbed_ = true;
    ++exporter.unread_rests;
    p->rests = !options_.trusts_silence;
  } else if (exporter.doing == Doing::kWaits) {
    exporter.borrower_rests = p->rests = true;
  }
}

bool MoveWorld::IsSilent() {
  if (silences_ == options_.silences || (dice_ >> 12) % 4 != 0) return false;
  ++silences_;
  return true;
}

// True if the memory must stay for a process that has it open and has not
// ended.
bool MoveWorld::Stays(const Process& p) const {
  return p.borrower && processes_[*p.borrower].alive && !p.borrower_rests &&
         !options_.leaves_borrowers;
}

void MoveWorld::Leave(Process* p) {
  p->goes_on = p->place == Place::kGpu;  // if it fails
  if (p->place == Place::kGpu) Rest(p);
  p->may_be_old = true;
  if (p->unread_rests != 0 && dice_ % 2 == 0) {
    p->unread_rests = 0;
    p->borrower_rests = true;
  }
  if (Stays(*p)) {
    if (!disturbed_) Fail("what an engine shares with itself does not leave");
    p->place = Place::kHost;
    if (p->rests) p->opened.reset();
    return Result(p, true);
  }
  p->doing = Doing::kCopies;
  connections_[*p->connection].up.push_back(
      {Message::kContents, {}, p->report.order, {}, *p->memory});
}

void MoveWorld::ComeBack(Process* p) {
  if (p->memory) {
    p->place = Place::kAtRest;
    return Result(p, !p->goes_on || GoOn(p));
  }
  if (!HasRoom()) {
    disturbed_ = true;
    p->report.lacks_room = 1;
    return Result(p, false);
  }
  p->filled = memory_.size();
  memory_.push_back(kNoContent);
  p->doing = Doing::kFills;
  connections_[*p->connection].up.push_back(
      {Message::kFill, {}, p->report.order, {}, *p->filled});
  if (!options_.opens_early) return;
  p->memory = p->filled;
  OpenGate(p);
}

// False if it must stay at rest.
bool MoveWorld::GoOn(Process* p) {
  if (p->rests && !AskForOpened(p) && !options_.goes_on_without) return false;
  p->rests = false;
  p->place = Place::kGpu;
  OpenGate(p);
  return true;
}

bool MoveWorld::AskForOpened(Process* p) {
  Process& exporter = processes_[*p->exporter];
  if (!exporter.alive) {
    if (p->opened && (!p->may_be_old || options_.trusts_the_dead)) return true;
    ++lost_;
    const auto number = static_cast<size_t>(p - processes_.data());
    --deaths_;
    Die(number);
    return false;
  }
  if (IsSilent()) {
    disturbed_ = true;
    return false;
  }
  exporter.unread_rests = 0;  // and the one that is read now is later
  if (exporter.doing != Doing::kWaits || !exporter.memory) {
    exporter.rung = true;
    return false;
  }
  exporter.borrower_rests = false;
  if (p->opened && options_.keeps_old_mapping) return true;
  if (!p->opened || p->opened_departures != exporter.departures) {
    p->opened = exporter.memory;
    p->opened_departures = exporter.departures;
  }
  return true;
}

// Opens the gate. The calls that wait behind the gate go on.
void MoveWorld::OpenGate(Process* p) {
  p->gate_open = true;
  p->needs = p->has_rung = false;
}

void MoveWorld::Copied(Process* p, const Message& copied) {
  if (!copied.ok) {
    p->doing = Doing::kWaits;
    if (p->goes_on) GoOn(p);
    return Result(p, false);
  }
  p->copy = copied.copy;
  p->claim = copied.claim;
  p->memory.reset();
  ++p->departures;
  p->place = Place::kHost;
  left_open_ += p->borrower && processes_[*p->borrower].alive;
  if (p->rests) p->opened.reset();
  ++left_;
  Result(p, true);
}

void MoveWorld::Return(Process* p, size_t memory) {
  p->memory = memory;
  p->filled.reset();
  p->place = Place::kAtRest;
  p->doing = Doing::kWaits;
  ++returned_;
  if (options_.opens_early) OpenGate(p);
  Result(p, !p->goes_on || GoOn(p));
}

// Fills the memory from the store's files, which the process holds, once no
// daemon fills it.
void MoveWorld::FillItself(Process* p) {
  size_t memory = memory_.size();
  if (options_.fills_the_same_memory && p->filled) {
    memory = *p->filled;
  } else {
    p->filled.reset();
    if (!HasRoom()) {
      p->report.lacks_room = 1;
      disturbed_ = true;
      return Result(p, false);
    }
    memory_.push_back(kNoContent);
  }
  const auto copy = files_.find(KeyOf(*p->copy));
  if (copy == files_.end())
    return Fail("a copy that its process needs is gone");
  memory_[memory] = copy->second;
  Return(p, memory);
}

void MoveWorld::Refuse(size_t i) {
  Process& p = processes_[i];
  Connection& c = connections_[*p.connection];
  p.report.order = c.down.front().order;
  c.down.pop_front();
  if (p.place == Place::kHost) return Result(&p, true);
  Result(&p, false);
}

// Gives up on a daemon that does not answer. The daemon may still be working on
// the move.
void MoveWorld::GiveUp(size_t i) {
  Process& p = processes_[i];
  ++drops_;
  disturbed_ = true;
  if (p.connection) connections_[*p.connection].open = false;
  LoseConnection(&p);
}

void MoveWorld::LoseConnection(Process* p) {
  disturbed_ = true;
  p->connection.reset();
  if (p->doing == Doing::kCopies) Copied(p, {Message::kCopied});
  if (p->doing == Doing::kFills) FillItself(p);
  if (p->place == Place::kAtRest) p->may_be_old = true;
}

// Once it has lost its daemon.
void MoveWorld::GoOnAlone(size_t i) {
  Process& p = processes_[i];
  p.may_be_old = true;
  GoOn(&p);
}

void MoveWorld::HelpAlone(size_t i) {
  Process& p = processes_[i];
  p.rung = false;
  p.goes_on = true;
  if (p.memory) return ComeBack(&p);
  if (HasRoom()) FillItself(&p);
}

void MoveWorld::Die(size_t i) {
  Process& p = processes_[i];
  ++deaths_;
  disturbed_ = true;
  p.alive = false;
  if (p.connection) connections_[*p.connection].open = false;
}

void MoveWorld::Stop(size_t i) {
  ++stops_;
  processes_[i].stopped = true;
}

void MoveWorld::GoOn(size_t i) { processes_[i].stopped = false; }

// --- The daemon, as SocketServer ---

void MoveWorld::Post(Job::Kind kind, size_t p) { jobs_.push_back({kind, p}); }

void MoveWorld::Deliver(size_t number) {
  Connection& c = connections_[number];
  if (c.up.empty()) return CloseEnd(number);
  const Message message = c.up.front();
  c.up.pop_front();
  if (message.kind == Message::kReport) return HandleReport(number, message);
  c.copying = message.order;
  const bool is_fill = message.kind == Message::kFill;
  jobs_.push_back({is_fill ? Job::kFill : Job::kKeep, c.process, message.order,
                   message.memory});
}

// Closes all but the last connections, with the messages in them, which the
// process will never read.
void MoveWorld::CloseConnections(size_t process, size_t before) {
  for (size_t c = 0; c < before; ++c) {
    if (connections_[c].process == process && connections_[c].handled) {
      CloseEnd(c);
    }
  }
}

void MoveWorld::HandleReport(size_t number, const Message& message) {
  Connection& c = connections_[number];
  if (!std::exchange(c.was_heard, true) && !options_.hears_former_connections) {
    CloseConnections(c.process, number);
  }
  const bool is_out = message.report.place == Place::kHost;
  if (message.copy) {
    Job adopts = {Job::kAdopt, c.process};
    adopts.is_out = message.report.out_bytes != 0;
    adopts.copy = message.copy;
    adopts.claim = message.claim;
    jobs_.push_back(adopts);
  }
  if (is_out) {
    Post(Job::kCommit, c.process);
  } else {
    Post(Job::kCancel, c.process);
    Post(Job::kReturn, c.process);
  }
  const auto order = orders_.find(number);
  if (order != orders_.end() && order->second == message.report.order) {
    orders_.erase(order);
  }
  book_->Report(MoverOf(number), Number(processes_[c.process].engine),
                message.report);
  CarryOut();
}

void MoveWorld::CloseEnd(size_t number) {
  Connection& c = connections_[number];
  c.handled = false;
  orders_.erase(number);
  if (options_.forgets_with_connection) Post(Job::kForget, c.process);
  book_->Gone(MoverOf(number));
  CarryOut();
}

void MoveWorld::Bury(size_t p) {
  processes_[p].buried = true;
  Post(Job::kForget, p);
  CloseConnections(p, connections_.size());
}

void MoveWorld::CarryOut() {
  for (const MoveBook::Order& order : book_->TakeOrders()) {
    const auto number = static_cast<uint64_t>(order.mover) - 1;
    if (!orders_.emplace(number, order.number).second) {
      Fail("a mover has two orders");
    }
    connections_[number].down.push_back(
        {Message::kOrder, {}, order.number, order.to});
  }
  for (const MoveBook::Answer& answer : book_->TakeAnswers()) {
    if (asked_.erase(static_cast<uint64_t>(answer.asker)) == 0) {
      Fail("an answer without a question");
    }
  }
}

void MoveWorld::AskOut(size_t engine) {
  asked_.insert(++last_asker_);
  book_->Ask(MoveBook::AskerId{last_asker_}, Number(engine), Place::kHost);
  CarryOut();
}

void MoveWorld::AskBack(size_t engine) {
  asked_.insert(++last_asker_);
  book_->Ask(MoveBook::AskerId{last_asker_}, Number(engine), Place::kGpu);
  CarryOut();
}

void MoveWorld::Leave(size_t engine) {
  book_->Leave(Number(engine));
  CarryOut();
}

// Reports that requests wait for the engine until it is there. Admission
// repeats the report.
void MoveWorld::Need(size_t engine) {
  wanted_.insert(engine);
  if (book_->EvictedBytes(Number(engine)) == 0) wanted_.erase(engine);
  book_->Need(Number(engine));
  CarryOut();
}

void MoveWorld::Wait(size_t) { clock_.AdvanceNs(kStayNs); }

// Kills the daemon. The GPU may be in the middle of a copy.
void MoveWorld::Crash(size_t) {
  ++crashes_;
  disturbed_ = true;
  if (!jobs_.empty() && jobs_.front().kind == Job::kFill) {
    old_fills_.push_back(jobs_.front());
    old_fills_.back().copy = processes_[jobs_.front().process].copy;
  }
  jobs_.clear();
  asked_.clear();
  orders_.clear();
  for (Connection& c : connections_) c.open = c.handled = false;
  book_.reset();
  contents_.reset();
  kept_claims_.clear();
}

void MoveWorld::Restart(size_t) { OpenDaemon(); }

void MoveWorld::FinishOldFill(size_t) {
  const Job job = old_fills_.back();
  old_fills_.pop_back();
  const auto copy = files_.find(KeyOf(*job.copy));
  if (copy != files_.end()) memory_[job.memory] = copy->second;
}

// --- The store's thread ---

// Runs one job. Content to keep is fingerprinted before it is copied.
void MoveWorld::RunJob(size_t) {
  Job& next = jobs_.front();
  if (next.kind == Job::kKeep && next.print == kNoContent) {
    next.print = memory_[next.memory];
    return;
  }
  const Job job = next;
  jobs_.pop_front();
  const store::HolderId holder = HolderOf(processes_[job.process]);
  store::Contents::Freed freed;
  Claims& claims = kept_claims_[job.process];
  switch (job.kind) {
    case Job::kKeep:
      return RunKeep(job);
    case Job::kFill:
      return RunFill(job);
    case Job::kCommit:
      if (claims.pending) claims.held = std::exchange(claims.pending, {});
      contents_->Commit(holder, &freed);
      break;
    case Job::kCancel:
      Unclaim(&claims.pending);
      contents_->Cancel(holder, &freed);
      break;
    case Job::kReturn:
      Unclaim(&claims.held);
      contents_->Return(holder, &freed);
      break;
    case Job::kForget:
      Unclaim(&claims.pending);
      Unclaim(&claims.held);
      contents_->Forget(holder, &freed);
      break;
    case Job::kAdopt: {
      if (contents_->Has(holder)) break;
      const auto bytes = files_.find(KeyOf(*job.copy));
      if (bytes == files_.end()) {
        if (job.is_out) Fail("a copy that its process needs is gone");
        break;  // a spare one that was freed
      }
      auto copy = contents_->At(job.copy->file, job.copy->offset);
      if (!copy) copy = contents_->Add({{bytes->second, 0}, 1}, *job.copy);
      claims.held = job.claim;
      if (!job.is_out) Unclaim(&claims.held);
      contents_->Adopt(holder, {{0, *copy}}, job.is_out, &freed);
      break;
    }
  }
  Free(freed);
}

void MoveWorld::RunKeep(const Job& job) {
  const store::HolderId holder = HolderOf(processes_[job.process]);
  const store::ContentKey key = {{job.print, 0}, 1};
  auto copy = contents_->Find(key);
  shared_ += copy.has_value();
  if (!copy) {
    const store::CopyPlace place = {daemons_, ++copies_, 1};
    copy = contents_->Add(key, place);
    files_[KeyOf(place)] = memory_[job.memory];
  }
  store::Contents::Freed freed;
  contents_->Hold(holder, {{0, *copy}}, &freed);
  if (options_.commits_when_copied) contents_->Commit(holder, &freed);
  Free(freed);
  Message answer = {Message::kCopied};
  answer.ok = true;
  answer.copy = contents_->PlaceOf(*copy);
  answer.claim = claims_.size();
  claims_.push_back({*answer.copy});
  kept_claims_[job.process].pending = answer.claim;
  SendResult(job, answer);
}

void MoveWorld::RunFill(const Job& job) {
  Message answer = {Message::kFilled};
  const auto copy = contents_->CopyOf(HolderOf(processes_[job.process]), 0);
  answer.ok = copy.has_value();
  if (copy) memory_[job.memory] = files_.at(KeyOf(contents_->PlaceOf(*copy)));
  SendResult(job, answer);
}

void MoveWorld::SendResult(const Job& job, Message answer) {
  answer.order = job.order;
  for (Connection& c : connections_) {
    if (!c.handled || c.process != job.process || c.copying != job.order) {
      continue;
    }
    c.copying = 0;
    c.down.push_back(answer);
    return;
  }
}

// Frees copies. This is the only daemon, so no other daemon has locked what it
// lets go of.
void MoveWorld::Free(const store::Contents::Freed& freed) {
  for (const store::CopyPlace& place : freed) {
    if (options_.ignores_locks || !IsLocked(place)) files_.erase(KeyOf(place));
  }
}

void MoveWorld::Unclaim(absl::optional<size_t>* claim) {
  if (*claim) claims_[**claim].is_locked = false;
  claim->reset();
}

bool MoveWorld::IsOpen(size_t claim) const {
  const auto is = [&](const auto& of) { return of.claim == claim; };
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Process& p) { return p.alive && is(p); }) ||
         std::any_of(connections_.begin(), connections_.end(),
                     [&](const Connection& c) {
                       return c.open &&
                              std::any_of(c.down.begin(), c.down.end(), is);
                     }) ||
         std::any_of(
             kept_claims_.begin(), kept_claims_.end(), [&](const auto& kept) {
               return kept.second.held == claim || kept.second.pending == claim;
             });
}

bool MoveWorld::IsLocked(const store::CopyPlace& copy) const {
  for (size_t i = 0; i < claims_.size(); ++i) {
    if (claims_[i].is_locked && KeyOf(claims_[i].copy) == KeyOf(copy) &&
        IsOpen(i)) {
      return true;
    }
  }
  return false;
}

// --- What must hold ---

void MoveWorld::Check() {
  for (const Process& p : processes_) {
    if (!p.alive) continue;
    const std::string who = absl::StrCat("process ", p.pid);
    if (p.gate_open && (!p.memory || memory_[*p.memory] != p.wrote)) {
      Fail(who + " computes with what it did not write");
    }
    if (p.gate_open && p.exporter) CheckOpened(p);
    if (p.place != Place::kHost || p.memory) continue;
    const auto copy = p.copy ? files_.find(KeyOf(*p.copy)) : files_.end();
    if (copy == files_.end()) {
      Fail(who + " is out, and its copy is gone");
    } else if (copy->second != p.wrote) {
      Fail(who + " is out, and its copy is not what it wrote");
    }
  }
}

// If the exporter has ended, the process must have the memory as it was at the
// end.
void MoveWorld::CheckOpened(const Process& p) {
  if (p.opened && memory_[*p.opened] == processes_[*p.exporter].wrote) return;
  Fail(absl::StrCat("process ", p.pid, " computes with what was another's"));
}

bool MoveWorld::Rests() const {
  const bool all_read = std::all_of(
      connections_.begin(), connections_.end(), [](const Connection& c) {
        return !c.handled || (c.up.empty() && c.down.empty() && c.open);
      });
  const bool none_moves =
      std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
        return !p.alive ? p.buried || !book_
                        : IsConnected(p) && p.doing == Doing::kWaits &&
                              !p.needs && !p.rung;
      });
  return book_ && jobs_.empty() && old_fills_.empty() && all_read &&
         none_moves && wanted_.empty();
}

std::string MoveWorld::Settle() {
  settles_ = true;
  room_ = UINT32_MAX;
  uint32_t random = 0;
  for (int i = 0; i < kMostRounds && !Rests() && violation_.empty(); ++i) {
    for (size_t n = processes_.size() * 8; n-- > 0 && !Rests();) {
      Happen(random = random * 1664525 + 1013904223);
    }
    clock_.AdvanceNs(kSecondNs);
  }
  if (violation_.empty()) CheckRest();
  return violation_;
}

void MoveWorld::CheckRest() {
  if (!Rests()) return Fail("an engine that is needed does not come back");
  if (!asked_.empty()) return Fail("a question without an answer");
  if (!orders_.empty()) return Fail("an order without a result");
  if (book_->AnyLeaves()) return Fail("a move does not end");
  uint64_t held = 0;
  std::map<size_t, std::set<Place>> places;
  std::set<std::pair<uint32_t, uint64_t>> held_copies;
  for (const Process& p : processes_) {
    if (!p.alive) continue;
    places[p.engine].insert(p.place);
    if (!p.copy || !contents_->Has(HolderOf(p))) continue;
    if (held_copies.insert(KeyOf(*p.copy)).second) ++held;
  }
  for (const auto& [engine, sides] : places) {
    if ((sides.size() > 1 || sides.count(Place::kAtRest) != 0) && !disturbed_) {
      return Fail("an engine is on both sides");
    }
  }
  if (contents_->held_bytes() > held) {
    Fail("the store has copies that no living process brought");
  }
}

}  // namespace fineserve::protocol
