#include "tests/protocol/rank_world.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::protocol {
namespace {

using abi::Place;
using abi::Seat;
using server::MoveBook;
using slab::EngineId;

constexpr uint64_t kRoundNs = 1'000'000'000;
constexpr uint64_t kPauseNs = 10 * kRoundNs;
// On average, one in this many steps may be a fault.
constexpr uint32_t kFaultPeriod = 16;
constexpr size_t kMostReports = 3;  // that are unread
// Rounds until everything has come to rest: longer than any engine is left
// alone.
constexpr int kMostRankRounds = 2'000;

EngineId EngineOf(size_t engine) {
  return EngineId{static_cast<uint32_t>(engine) + 1};
}

MoveBook::MoverId IdOf(size_t connection) {
  return MoveBook::MoverId{connection + 1};
}

}  // namespace

RankWorld::RankWorld(const RankOptions& options) : options_(options) {
  for (const std::vector<uint32_t>& ranks : options_.engines) {
    Engine& engine = engines_.emplace_back();
    engine.first = processes_.size();
    engine.ranks = ranks.size();
    for (const uint32_t gpu : ranks) {
      const Seat seat = gpu == ranks[0] ? Seat::kWhole : Seat::kRank;
      processes_.push_back({engines_.size() - 1, gpu, seat});
      gpus_ = std::max(gpus_, gpu + 1);
    }
    processes_.push_back({engines_.size() - 1, ranks[0], Seat::kPool});
    processes_.back().has_memory = false;
  }
  for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    books_.push_back(std::make_unique<MoveBook>(&clock_));
  }
  rooms_.resize(gpus_);
}

// --- What may happen ---

void RankWorld::Happen(uint32_t random) {
  const bool begins = !settles_;
  const bool is_rare = begins && (random >> 20) % kFaultPeriod == 0;
  // An engine that could not leave is left alone, for longer each time.
  const bool leaves_if_idle = settles_ && options_.by_need;
  for (size_t e = 0; e < engines_.size(); ++e) {
    const Engine& engine = engines_[e];
    const bool lives = IsAlive(e);
    const bool asked = engine.presence == Presence::kAsked;
    const bool here = engine.presence == Presence::kHere;
    const bool first = books_[FirstGpu(e)] != nullptr;
    Allow(!lives, &RankWorld::EndEngine, e);
    if (!lives) continue;
    Allow(begins && !engine.requests, &RankWorld::Ask, e);
    Allow(engine.runs && engine.requests && !engine.in_step && !engine.suspends,
          &RankWorld::BeginStep, e);
    Allow(engine.in_step, &RankWorld::EndStep, e);
    Allow(engine.suspends, &RankWorld::SuspendNext, e);
    Allow(asked && !engine.suspends &&
              (!engine.requests || !engine.runs ||
               options_.pool_leaves_in_a_step),
          &RankWorld::LeavePool, e);
    Allow(asked && (engine.requests || !leaves_if_idle),
          &RankWorld::RefuseToLeave, e);
    Allow(here && !engine.runs && !engine.suspends, &RankWorld::ComeBack, e);
    Allow(engine.requests && engine.presence == Presence::kAway &&
              !(options_.rings_once && engine.has_rung),
          &RankWorld::RingPool, e);
    Allow(first && begins && asked_.size() < 2, &RankWorld::AskOut, e);
    Allow(first && begins && asked_.size() < 2, &RankWorld::AskBack, e);
    Allow(begins && engine.requests, &RankWorld::Need, e);
    Allow(engine.requests, &RankWorld::NeedElsewhere, e);
  }
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Process& p = processes_[i];
    if (!p.alive) continue;
    const bool waits = p.doing == Doing::kWaits;
    const bool led = p.seat == Seat::kRank;
    Allow(Hears(p.orders), &RankWorld::Receive, i);
    Allow(Hears(p.store), &RankWorld::ReadStore, i);
    Allow(p.rung && waits && IsOpen(p.orders) && !Hears(p.orders) &&
              connections_[*p.orders].up.size() < kMostReports,
          &RankWorld::AnswerBell, i);
    Allow(p.doing == Doing::kAwaitsPool, &RankWorld::AwaitPool, i);
    Allow(p.doing == Doing::kAwaitsPool && p.seat != Seat::kPool &&
              !(leaves_if_idle && engines_[p.engine].suspends),
          &RankWorld::GiveUpPool, i);
    Allow(p.room_is_needed && waits && IsOpen(p.orders) && !Hears(p.orders) &&
              connections_[*p.orders].up.size() < kMostReports,
          &RankWorld::PassOnRoomNeed, i);
    Allow(!p.orders && waits && books_[FirstGpu(p.engine)] != nullptr,
          &RankWorld::ConnectOrders, i);
    Allow(led && !p.store && waits && books_[p.gpu] != nullptr,
          &RankWorld::ConnectStore, i);
    Allow(!p.orders && waits && p.place == Place::kAtRest,
          &RankWorld::GoOnAlone, i);
    const bool may_drop = is_rare && drops_ < options_.drops;
    Allow(may_drop && IsOpen(p.orders), &RankWorld::DropOrders, i);
    Allow(may_drop && IsOpen(p.store), &RankWorld::DropStore, i);
    Allow(is_rare && deaths_ < options_.deaths, &RankWorld::Die, i);
  }
  for (size_t c = 0; c < connections_.size(); ++c) {
    const Connection& at = connections_[c];
    Allow(
        books_[at.gpu] != nullptr && at.handled && (!at.up.empty() || !at.open),
        &RankWorld::Deliver, c);
  }
  for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    Allow(is_rare && books_[gpu] && crashes_ < options_.crashes,
          &RankWorld::Crash, gpu);
    Allow(!books_[gpu], &RankWorld::Restart, gpu);
    Allow(options_.by_need && books_[gpu] && rooms_[gpu].lacks,
          &RankWorld::MakeRoom, gpu);
  }
  Allow(begins, &RankWorld::Wait, 0);
  if (Choose(random)) Check();
}

bool RankWorld::IsOpen(const absl::optional<size_t>& connection) const {
  return connection && connections_[*connection].open;
}

// True if the connection has an unread message, or has ended.
bool RankWorld::Hears(const absl::optional<size_t>& connection) const {
  return connection && (!connections_[*connection].open ||
                        !connections_[*connection].down.empty());
}

absl::optional<size_t> RankWorld::StoreOf(const Process& p) const {
  return p.seat == Seat::kRank ? p.store : p.orders;
}

bool RankWorld::HasRoom(uint32_t gpu) const {
  const auto used = std::count_if(
      processes_.begin(), processes_.end(), [&](const Process& p) {
        return p.alive && p.gpu == gpu &&
               (p.has_memory || p.doing == Doing::kFills);
      });
  return used < options_.room;
}

bool RankWorld::IsAlive(size_t e) const {
  const Engine& engine = engines_[e];
  for (size_t i = 0; i <= engine.ranks; ++i) {
    if (!processes_[engine.first + i].alive) return false;
  }
  return true;
}

bool RankWorld::AllServe(size_t e) const {
  const Engine& engine = engines_[e];
  for (size_t i = 0; i < engine.ranks; ++i) {
    const Process& p = processes_[engine.first + i];
    if (!p.gate_open || !p.has_memory || !p.has_view || p.is_away) return false;
  }
  return true;
}

// --- The process that runs the block pool: its thread ---

void RankWorld::Ask(size_t e) { engines_[e].requests = true; }

void RankWorld::BeginStep(size_t e) { engines_[e].in_step = true; }

void RankWorld::EndStep(size_t e) {
  engines_[e].in_step = engines_[e].requests = engines_[e].has_rung = false;
  ++steps_;
}

void RankWorld::LeavePool(size_t e) {
  Engine& engine = engines_[e];
  engine.presence = Presence::kAway;
  engine.runs = false;
  engine.suspends = true;
  engine.suspended = 0;
}

// The engine suspends its workers one after another.
void RankWorld::SuspendNext(size_t e) {
  Engine& engine = engines_[e];
  Process& p = processes_[engine.first + engine.suspended++];
  p.has_view = false;
  p.is_away = true;
  engine.suspends = engine.suspended < engine.ranks;
}

void RankWorld::RefuseToLeave(size_t e) {
  engines_[e].presence = Presence::kHere;
  Process& pool = PoolOf(e);
  if (pool.doing == Doing::kAwaitsPool) Result(&pool, false);
}

bool RankWorld::IsInFormerPool(const Process& p) const {
  return p.has_view && books_[p.gpu] != nullptr && p.pool != rooms_[p.gpu].pool;
}

// Takes over the ranks' blocks again once all ranks have their views, in pools
// that still exist. A rank leaves a pool that does not.
void RankWorld::ComeBack(size_t e) {
  Engine& engine = engines_[e];
  bool all = true;
  for (size_t i = 0; i < engine.ranks; ++i) {
    Process& p = processes_[engine.first + i];
    if (!p.is_away && IsInFormerPool(p) && !options_.stays_in_lost_pools) {
      p.has_view = false;
      p.is_away = true;
    }
    p.rung = p.rung || p.is_away;
    all = all && !p.is_away && p.has_view && books_[p.gpu] != nullptr &&
          !IsInFormerPool(p);
  }
  engine.runs = all || options_.pool_goes_on_alone;
}

void RankWorld::RingPool(size_t e) {
  PoolOf(e).rung = engines_[e].has_rung = true;
}

// --- A process's mover ---

void RankWorld::Report(Process* p, bool is_needed) {
  p->report.place = p->place;
  p->report.can_rest = 1;
  p->report.need = is_needed ? abi::Need::kReturn : abi::Need::kNone;
  p->report.moving_bytes = p->has_memory ? 1 : 0;
  p->report.out_bytes = !p->has_memory && p->seat != Seat::kPool ? 1 : 0;
  p->report.seat = Seat::kLed;
  if (p->seat == Seat::kRank && IsOpen(p->store)) {
    connections_[*p->store].up.push_back({Message::kReport, p->report});
    connections_[*p->store].up.back().report.need = abi::Need::kNone;
  }
  p->report.seat = p->seat;
  if (p->seat == Seat::kPool) {
    p->report.allocations = static_cast<uint32_t>(engines_[p->engine].ranks);
  }
  if (IsOpen(p->orders)) {
    connections_[*p->orders].up.push_back({Message::kReport, p->report});
  }
  p->report = {};
}

void RankWorld::Result(Process* p, bool done) {
  p->doing = Doing::kWaits;
  p->report.failed = !done;
  Report(p, /*is_needed=*/false);
}

void RankWorld::Receive(size_t i) {
  Process& p = processes_[i];
  if (!IsOpen(p.orders)) {
    p.orders.reset();
    if (p.seat == Seat::kWhole) LoseStore(&p);
    if (p.seat == Seat::kRank) {
      p.report.failed = 1;  // no daemon orders it
      Report(&p, /*is_needed=*/false);
    }
    return;
  }
  Connection& c = connections_[*p.orders];
  const Message message = c.down.front();
  if (message.kind == Message::kOrder && p.doing != Doing::kWaits) {
    return Fail("a mover has two orders");
  }
  c.down.pop_front();
  if (message.kind == Message::kOrder) return Obey(&p, message);
  p.doing == Doing::kCopies ? Leave(&p) : Return(&p);
}

void RankWorld::ReadStore(size_t i) {
  Process& p = processes_[i];
  if (!IsOpen(p.store)) {
    p.store.reset();
    return LoseStore(&p);
  }
  const Message message = connections_[*p.store].down.front();
  connections_[*p.store].down.pop_front();
  if (message.kind == Message::kOrder && message.to == Place::kHost) {
    p.room_is_needed = !options_.keeps_room_needs;
  } else if (message.kind == Message::kOrder) {
    p.rung = p.rung || !options_.keeps_needs;
  } else {
    p.doing == Doing::kCopies ? Leave(&p) : Return(&p);
  }
}

// Handles the loss of the store: the process goes on with what is on the GPU,
// or fills its memory itself.
void RankWorld::LoseStore(Process* p) {
  if (p->doing == Doing::kFills) return Return(p);
  if (p->doing != Doing::kCopies) return;
  if (p->goes_on) GoOn(p);
  Result(p, false);
}

void RankWorld::Obey(Process* p, const Message& order) {
  p->report.order = order.order;
  if (order.to == p->place) return Result(p, true);
  p->goes_on = order.to == Place::kGpu || p->place == Place::kGpu;
  if (p->place == Place::kGpu) {
    p->doing = Doing::kAwaitsPool;
    p->leaves = order.to == Place::kHost;
    if (p->seat == Seat::kPool) {
      Engine& engine = engines_[p->engine];
      if (engine.presence == Presence::kHere) {
        engine.presence = Presence::kAsked;
      }
    }
    return;
  }
  if (p->place == Place::kHost) return Return(p);
  if (order.to == Place::kHost) return Leave(p);
  GoOn(p);
  Result(p, true);
}

// Moves a process on its way to rest, once the block pool has let it go.
void RankWorld::AwaitPool(size_t i) {
  Process& p = processes_[i];
  const bool is_pool = p.seat == Seat::kPool;
  if (is_pool ? engines_[p.engine].presence != Presence::kAway
              : !p.is_away && !options_.ranks_leave_alone) {
    return;
  }
  p.place = Place::kAtRest;
  p.gate_open = is_pool;
  if (p.leaves) return Leave(&p);
  Result(&p, true);
}

void RankWorld::GiveUpPool(size_t i) {
  if (!processes_[i].is_away) Result(&processes_[i], false);
}

// Moves a process to the host: hands its memory over, or completes that.
void RankWorld::Leave(Process* p) {
  if (p->seat == Seat::kPool) {
    p->place = Place::kHost;
    return Result(p, true);
  }
  if (p->doing == Doing::kCopies) {
    p->has_memory = false;
    p->place = Place::kHost;
    ++left_;
    return Result(p, true);
  }
  const absl::optional<size_t> store = StoreOf(*p);
  undone_ += p->has_view;
  p->has_view = false;
  p->doing = Doing::kCopies;
  if (!IsOpen(store)) return LoseStore(p);
  connections_[*store].up.push_back({Message::kContents});
}

bool RankWorld::ResumeView(Process* p) {
  if (!p->has_view && books_[p->gpu] != nullptr) {
    p->has_view = true;
    p->pool = rooms_[p->gpu].pool;
  }
  return p->has_view;
}

// Moves a process back from the host, to rest or further: has its memory
// filled, or completes that.
void RankWorld::Return(Process* p) {
  const absl::optional<size_t> store = StoreOf(*p);
  if (p->seat != Seat::kPool && p->doing != Doing::kFills) {
    if (!ResumeView(p)) return Result(p, false);
    if (!HasRoom(p->gpu)) {
      rooms_[p->gpu].lacks = p->engine;
      p->has_view = false;
      return Result(p, false);
    }
    p->doing = Doing::kFills;
    if (IsOpen(store)) {
      connections_[*store].up.push_back({Message::kFill});
      return;
    }
  }
  returned_ += p->seat != Seat::kPool;
  p->has_memory = p->seat != Seat::kPool;
  p->place = Place::kAtRest;
  if (p->goes_on) GoOn(p);
  Result(p, true);
}

void RankWorld::GoOn(Process* p) {
  p->gate_open = true;
  p->place = Place::kGpu;
  if (p->seat == Seat::kPool) {
    engines_[p->engine].presence = Presence::kHere;
  } else if (p->is_away && ResumeView(p)) {
    p->is_away = false;
  }
}

void RankWorld::AnswerBell(size_t i) {
  Process& p = processes_[i];
  p.rung = false;
  if (p.place != Place::kGpu) {
    Report(&p, /*is_needed=*/true);
  } else if (p.is_away && ResumeView(&p)) {
    p.is_away = false;
  }
}

// The rank's own daemon does not hear where the rank is, because that would
// count as the answer.
void RankWorld::PassOnRoomNeed(size_t i) {
  Process& p = processes_[i];
  p.room_is_needed = false;
  abi::MoveReport report = {};
  report.place = p.place;
  report.seat = Seat::kRank;
  report.can_rest = 1;
  report.need = abi::Need::kRoom;
  (p.has_memory ? report.moving_bytes : report.out_bytes) = 1;
  connections_[*p.orders].up.push_back({Message::kReport, report});
}

void RankWorld::GoOnAlone(size_t i) { GoOn(&processes_[i]); }

void RankWorld::ConnectOrders(size_t i) {
  Process& p = processes_[i];
  p.orders = connections_.size();
  p.room_is_needed = false;
  connections_.push_back({i, FirstGpu(p.engine)});
  Report(&p, /*is_needed=*/false);
}

void RankWorld::ConnectStore(size_t i) {
  Process& p = processes_[i];
  p.store = connections_.size();
  connections_.push_back({i, p.gpu});
  Report(&p, /*is_needed=*/false);
}

void RankWorld::DropOrders(size_t i) {
  ++drops_;
  engines_[processes_[i].engine].disturbed = true;
  connections_[*processes_[i].orders].open = false;
}

void RankWorld::DropStore(size_t i) {
  ++drops_;
  engines_[processes_[i].engine].disturbed = true;
  connections_[*processes_[i].store].open = false;
}

void RankWorld::Die(size_t i) {
  Process& p = processes_[i];
  ++deaths_;
  p.alive = false;
  Engine& engine = engines_[p.engine];
  engine.in_step = engine.requests = engine.suspends = false;
  for (Connection& c : connections_) {
    if (c.process == i) c.open = false;
  }
}

// Ends an engine that has lost a process.
void RankWorld::EndEngine(size_t e) {
  const Engine& engine = engines_[e];
  for (size_t i = 0; i <= engine.ranks; ++i) {
    if (!processes_[engine.first + i].alive) continue;
    Die(engine.first + i);
    --deaths_;
  }
}

// --- The daemons, as SocketServer ---

void RankWorld::Deliver(size_t number) {
  Connection& c = connections_[number];
  MoveBook& book = *books_[c.gpu];
  if (c.up.empty()) {
    c.handled = false;
    orders_.erase(number);
    book.Gone(IdOf(number));
    return CarryOut(c.gpu);
  }
  for (size_t former = 0; former < number; ++former) {
    Connection& at = connections_[former];
    if (at.process != c.process || at.gpu != c.gpu || !at.handled) continue;
    at.up.clear();
    Deliver(former);
  }
  const Message message = c.up.front();
  c.up.pop_front();
  if (message.kind != Message::kReport) {
    c.down.push_back(
        {message.kind == Message::kFill ? Message::kFilled : Message::kCopied});
    return;
  }
  const auto order = orders_.find(number);
  if (order != orders_.end() && order->second == message.report.order) {
    orders_.erase(order);
  }
  const size_t e = processes_[c.process].engine;
  abi::MoveReport report = message.report;
  if (report.need == abi::Need::kReturn && MustWaitForRoom(c.gpu, e)) {
    report.need = abi::Need::kNone;
  }
  const uint32_t gpu = c.gpu;
  book.Report(IdOf(number), EngineOf(e), report);
  if (report.need == abi::Need::kRoom) LetGo(gpu, e, number);
  CarryOut(gpu);
}

bool RankWorld::MustWaitForRoom(uint32_t gpu, size_t e) const {
  const Gpu& room = rooms_[gpu];
  return room.turn && *room.turn != e && clock_.NowNs() < room.turn_ends_ns;
}

// Handled by the first rank's daemon: the engine leaves if it has no requests.
void RankWorld::LetGo(uint32_t gpu, size_t e, size_t connection) {
  MoveBook& book = *books_[gpu];
  if (book.StayOut(EngineOf(e))) return;
  if (engines_[e].requests || !book.Leave(EngineOf(e))) {
    return book.Decline(IdOf(connection));
  }
  ++let_go_;
  book.StayOut(EngineOf(e));
}

// Makes an idle engine leave for the one that lacks room. If another daemon
// moves an engine, that daemon knows whether the engine is idle.
void RankWorld::MakeRoom(size_t gpu) {
  Gpu& room = rooms_[gpu];
  MoveBook& book = *books_[gpu];
  const size_t asker = *std::exchange(room.lacks, absl::nullopt);
  if (MustWaitForRoom(static_cast<uint32_t>(gpu), asker)) return;
  bool comes = book.AnyLeaves();
  for (size_t e = 0; e < engines_.size() && !comes; ++e) {
    const bool is_busy = FirstGpu(e) == gpu && engines_[e].requests;
    const auto residence = book.ResidenceOf(EngineOf(e));
    if (e == asker || is_busy || !residence || residence->bytes == 0) continue;
    comes = book.Leave(EngineOf(e));
  }
  if (!comes) {
    if (room.turn == asker) room.turn.reset();
    return CarryOut(static_cast<uint32_t>(gpu));
  }
  room.turn = asker;
  room.turn_ends_ns = clock_.NowNs() + 2 * kRoundNs;
  book.KeepOthersOut(EngineOf(asker));
  CarryOut(static_cast<uint32_t>(gpu));
}

void RankWorld::CarryOut(uint32_t gpu) {
  for (const MoveBook::Order& order : books_[gpu]->TakeOrders()) {
    const auto number = static_cast<uint64_t>(order.mover) - 1;
    Connection& c = connections_[number];
    const bool is_first = FirstGpu(processes_[c.process].engine) == gpu;
    if (is_first && !orders_.emplace(number, order.number).second) {
      Fail("a mover has two orders");
    }
    c.down.push_back({Message::kOrder, {}, order.number, order.to});
  }
  for (const MoveBook::Answer& answer : books_[gpu]->TakeAnswers()) {
    if (asked_.erase(static_cast<uint64_t>(answer.asker)) == 0) {
      Fail("an answer without a question");
    }
  }
}

void RankWorld::AskOut(size_t e) {
  asked_[++last_asker_] = FirstGpu(e);
  books_[FirstGpu(e)]->Ask(MoveBook::AskerId{last_asker_}, EngineOf(e),
                           Place::kHost);
  CarryOut(FirstGpu(e));
}

void RankWorld::AskBack(size_t e) {
  asked_[++last_asker_] = FirstGpu(e);
  books_[FirstGpu(e)]->Ask(MoveBook::AskerId{last_asker_}, EngineOf(e),
                           Place::kGpu);
  CarryOut(FirstGpu(e));
}

void RankWorld::Need(size_t e) {
  if (!books_[FirstGpu(e)] || MustWaitForRoom(FirstGpu(e), e)) return;
  books_[FirstGpu(e)]->Need(EngineOf(e));
  CarryOut(FirstGpu(e));
}

void RankWorld::NeedElsewhere(size_t e) {
  const uint32_t gpu = options_.engines[e].back();
  if (!books_[gpu]) return;
  books_[gpu]->Need(EngineOf(e));
  CarryOut(gpu);
}

void RankWorld::Crash(size_t gpu) {
  ++crashes_;
  books_[gpu].reset();
  rooms_[gpu] = {.pool = rooms_[gpu].pool + (options_.loses_pools ? 1 : 0)};
  for (size_t c = 0; c < connections_.size(); ++c) {
    if (connections_[c].gpu != gpu) continue;
    connections_[c].open = connections_[c].handled = false;
    connections_[c].down.clear();
    orders_.erase(c);
  }
  std::erase_if(asked_, [&](const auto& ask) { return ask.second == gpu; });
  for (size_t e = 0; e < engines_.size(); ++e) {
    const std::vector<uint32_t>& on = options_.engines[e];
    engines_[e].disturbed |= std::count(on.begin(), on.end(), gpu) != 0;
  }
}

void RankWorld::Restart(size_t gpu) {
  books_[gpu] = std::make_unique<MoveBook>(&clock_);
}

void RankWorld::Wait(size_t) { clock_.AdvanceNs(kPauseNs); }

// --- What must hold ---

void RankWorld::Check() {
  for (size_t e = 0; e < engines_.size(); ++e) {
    if (engines_[e].in_step && IsAlive(e) && !AllServe(e)) {
      Fail(absl::StrCat("a step of engine ", e,
                        " runs without the memory of all its ranks"));
    }
  }
}

bool RankWorld::Rests() const {
  const bool all_read = std::all_of(
      connections_.begin(), connections_.end(), [](const Connection& c) {
        return !c.handled || (c.up.empty() && c.down.empty() && c.open);
      });
  const bool none_moves =
      std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
        return !p.alive || (IsOpen(p.orders) && p.doing == Doing::kWaits &&
                            (p.seat != Seat::kRank || IsOpen(p.store)));
      });
  return all_read && none_moves && asked_.empty() &&
         std::all_of(engines_.begin(), engines_.end(), [](const Engine& e) {
           return !e.requests && !e.in_step && !e.suspends;
         });
}

// If an engine is needed, idle engines are asked to leave.
std::string RankWorld::Settle() {
  settles_ = true;
  std::mt19937 random(0);
  for (int i = 0; i < kMostRankRounds && !Rests() && violation_.empty(); ++i) {
    for (size_t n = processes_.size() * 20; n-- > 0 && !Rests();) {
      Happen(static_cast<uint32_t>(random()));
    }
    clock_.AdvanceNs(kRoundNs);
    const bool needed = std::any_of(engines_.begin(), engines_.end(),
                                    [](const Engine& e) { return e.requests; });
    const bool asks = needed && asked_.empty() && !options_.by_need;
    for (size_t e = 0; e < engines_.size() && asks; ++e) {
      if (!engines_[e].requests && IsAlive(e) && books_[FirstGpu(e)]) AskOut(e);
    }
  }
  if (violation_.empty()) CheckRest();
  return violation_;
}

// Says for each process where it is, what it does, and whether it has its
// memory and its view.
std::string RankWorld::Account() const {
  std::string text;
  for (const Process& p : processes_) {
    const Engine& engine = engines_[p.engine];
    absl::StrAppend(
        &text, "\nengine ", p.engine, " GPU ", p.gpu, " seat ",
        static_cast<int>(p.seat), " place ", static_cast<int>(p.place),
        " doing ", static_cast<int>(p.doing), p.alive ? "" : " dead",
        p.has_memory ? " memory" : "", p.has_view ? " view" : "",
        p.is_away ? " away" : "", p.rung ? " rung" : "",
        IsOpen(p.orders) ? " orders" : "", IsOpen(p.store) ? " store" : "");
    if (p.seat != Seat::kPool) continue;
    absl::StrAppend(&text, engine.requests ? " requests" : "",
                    engine.runs ? " runs" : "",
                    engine.in_step ? " in step" : "", " presence ",
                    static_cast<int>(engine.presence));
  }
  return text;
}

void RankWorld::CheckRest() {
  if (!asked_.empty()) return Fail("a question without an answer");
  if (!Rests()) {
    return Fail("an engine that is needed does not come back" + Account());
  }
  if (!orders_.empty()) return Fail("an order without a result");
  for (size_t e = 0; e < engines_.size(); ++e) {
    const Engine& engine = engines_[e];
    if (!IsAlive(e) || engine.disturbed) continue;
    std::set<Place> sides;
    for (size_t i = 0; i <= engine.ranks; ++i) {
      sides.insert(processes_[engine.first + i].place);
    }
    if (sides.size() > 1 || *sides.begin() == Place::kAtRest) {
      return Fail("an engine is on both sides" + Account());
    }
  }
}

}  // namespace fineserve::protocol
