#include "daemon/fineserved/eviction/move_book.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/hash.h"
#include "daemon/contract/abi/printable.h"

namespace fineserve::server {

using abi::Place;
using abi::Seat;
using slab::EngineId;

namespace {

// Nanoseconds assumed for each byte until an activation has been measured: 50
// GB/s, a fifth-generation PCIe link. If the guess were slower, the requests
// whose activations would correct it would be refused.
constexpr double kUnknownPace = 0.02;
constexpr size_t kPaces = 8;
// An engine stays after a failed eviction: kFirstStayNs at first, twice as long
// after each further failure, kLongestStayNs at most.
constexpr uint64_t kFirstStayNs = 10'000'000'000;
constexpr uint64_t kLongestStayNs = 640'000'000'000;
// If others wait for memory, the engine may be asked after this fraction of
// that time.
constexpr uint64_t kStayIfOthersWait = 4;
// After a failed return to several GPUs, an engine waits likewise, but for a
// random part of the time, so that two engines that want each other's memory do
// not try at the same time forever.
constexpr uint64_t kFirstWaitNs = 1'000'000'000;
constexpr uint64_t kLongestWaitNs = 16'000'000'000;
// Interval between two messages to another daemon about an engine that it
// moves.
constexpr uint64_t kAskAgainNs = 1'000'000'000;
constexpr uint64_t kKeepOutNs = 500'000'000;

// True if the memory of the process is on this daemon's GPU.
bool IsHere(const abi::MoveReport& report) {
  return report.seat != Seat::kRank && report.seat != Seat::kPool;
}

// Bytes in the store.
uint64_t OutBytes(const abi::MoveReport& report) {
  return report.place == Place::kDropped ? 0 : report.out_bytes;
}

}  // namespace

void MoveBook::Report(MoverId id, EngineId engine,
                      const abi::MoveReport& report) {
  Mover& mover = movers_[id];
  // The report was sent before the order arrived; the order's result will come.
  if (mover.order != 0 && report.order != mover.order) return;
  const uint32_t order = std::exchange(mover.order, 0);
  const bool came =
      mover.order_to == Place::kGpu || mover.report.place == Place::kHost;
  const bool had_dropped = mover.report.place == Place::kDropped;
  const bool has_dropped = report.place == Place::kDropped;
  const bool drops_more = report.out_bytes > mover.report.out_bytes;
  counts_.dropped += has_dropped && !had_dropped && order != 0;
  counts_.restored += had_dropped && report.place == Place::kGpu;
  mover.engine = engine;
  mover.report = report;
  if (report.seat == Seat::kLed && report.need != abi::Need::kSizes) {
    NoteAnswer(engine, report);
  }
  if (report.need == abi::Need::kReturn && !Lasts(waits_, engine))
    Begin(engine, Place::kGpu);
  const auto move = moves_.find(engine);
  if (move == moves_.end() || order == 0 || report.order != order) {
    return Advance(engine);
  }
  if (report.failed != 0) {
    mover.has_failed = came;
    Fail(engine, &move->second, abi::Printable(report.why),
         report.lacks_room != 0 ? absl::StatusCode::kResourceExhausted
                                : absl::StatusCode::kFailedPrecondition);
    // The process keeps what it had dropped earlier.
    if (move->second.asked == Place::kDropped) move->second.to = report.place;
    if (report.place == Place::kHost) LeaveAgain(engine, &move->second);
  } else if (report.place == move->second.asked) {
    move->second.moved += !had_dropped || !has_dropped || drops_more;
  }
  Advance(engine);
}

bool MoveBook::Begin(EngineId engine, Place to) {
  return moves_.try_emplace(engine, Move{{}, to, to, clock_->NowNs()}).second;
}

template <typename Is>
bool MoveBook::Any(EngineId engine, Is is) const {
  return std::any_of(movers_.begin(), movers_.end(), [&](const auto& entry) {
    const Mover& mover = entry.second;
    return mover.engine == engine && mover.report.seat != Seat::kLed &&
           is(mover);
  });
}

bool MoveBook::IsAway(EngineId engine) const {
  return Any(engine, [](const Mover& mover) {
    const abi::MoveReport& report = mover.report;
    return report.place == Place::kHost &&
           (report.out_bytes != 0 || report.seat == Seat::kPool);
  });
}

bool MoveBook::IsLed(EngineId engine) const {
  return std::any_of(movers_.begin(), movers_.end(), [&](const auto& entry) {
    return entry.second.engine == engine &&
           entry.second.report.seat == Seat::kLed;
  });
}

// True if ranks have no mover here: an eviction would leave them behind.
bool MoveBook::LacksRanks(EngineId engine) const {
  uint32_t ranks = 0;
  uint32_t wanted = 0;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.report.seat == Seat::kLed) continue;
    const bool is_pool = mover.report.seat == Seat::kPool;
    (is_pool ? wanted : ranks) += is_pool ? mover.report.allocations : 1;
  }
  return ranks < wanted;
}

// Gives orders as for any other move, but awaits no result.
bool MoveBook::TellLed(EngineId engine, Place at, Place to) {
  bool any = false;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.report.seat != Seat::kLed ||
        mover.report.place != at) {
      continue;
    }
    orders_.push_back({id, ++last_order_, to});
    any = true;
  }
  return any;
}

bool MoveBook::PassOnNeed(EngineId engine) {
  const bool rests = TellLed(engine, Place::kAtRest, Place::kGpu);
  return TellLed(engine, Place::kHost, Place::kGpu) || rests;
}

bool MoveBook::PassOnLeave(EngineId engine) {
  const uint64_t now_ns = clock_->NowNs();
  const auto [place, is_first] = asked_.try_emplace(engine);
  Asked& asked = place->second;
  if (!is_first && now_ns - asked.last_ns < kAskAgainNs) return false;
  const bool goes_on = !is_first && asked.answer == Asked::kNone &&
                       now_ns - asked.last_ns < 2 * kAskAgainNs;
  if (!goes_on) asked.first_ns = now_ns;
  asked.last_ns = now_ns;
  asked.answer = Asked::kNone;
  const bool is_silent = now_ns - asked.first_ns >= kBelievedNs;
  if (is_silent) stays_[engine] = {kFirstStayNs, now_ns + kFirstStayNs};
  if (!is_silent && TellLed(engine, Place::kGpu, Place::kHost)) return true;
  asked_.erase(place);
  return false;
}

// Takes the reported place as the answer; a process at rest means that the
// engine is on its way.
void MoveBook::NoteAnswer(EngineId engine, const abi::MoveReport& report) {
  const auto asked = asked_.find(engine);
  if (asked == asked_.end()) return;
  if (report.place == Place::kHost) {
    asked_.erase(asked);
    return;
  }
  asked->second.answer =
      report.place == Place::kGpu ? Asked::kStays : Asked::kLeaves;
}

bool MoveBook::IsBelievedToLeave(EngineId engine) const {
  const auto asked = asked_.find(engine);
  if (asked == asked_.end() || asked->second.answer == Asked::kStays) {
    return false;
  }
  const uint64_t patience_ns =
      asked->second.answer == Asked::kLeaves ? kBelievedNs : kAskAgainNs;
  return clock_->NowNs() - asked->second.last_ns < patience_ns;
}

bool MoveBook::HasDeclined(EngineId engine) const {
  const auto asked = asked_.find(engine);
  return asked != asked_.end() && asked->second.answer == Asked::kStays &&
         clock_->NowNs() - asked->second.last_ns < 2 * kAskAgainNs;
}

void MoveBook::KeepOthersOut(EngineId engine) {
  const uint64_t now_ns = clock_->NowNs();
  if (now_ns < keep_out_next_ns_) return;
  keep_out_next_ns_ = now_ns + kKeepOutNs;
  std::set<EngineId> others;
  for (const auto& [id, mover] : movers_) {
    if (mover.report.seat == Seat::kLed) others.insert(mover.engine);
  }
  others.erase(engine);
  for (const EngineId other : others) {
    TellLed(other, Place::kHost, Place::kHost);
  }
}

bool MoveBook::StayOut(EngineId engine) {
  const auto move = moves_.find(engine);
  if (move != moves_.end()) {
    move->second.is_for_room =
        move->second.is_for_room || move->second.asked == Place::kHost;
    return true;
  }
  if (!IsAway(engine)) return false;
  Pause& wait = waits_[engine];
  wait.until_ns = std::max(wait.until_ns, clock_->NowNs() + kStayOutNs);
  return true;
}

// Answers with an order that is already fulfilled, so that the rank only
// reports; the daemon that moves the rank gets that report too.
void MoveBook::Decline(MoverId rank) {
  const auto found = movers_.find(rank);
  if (found == movers_.end() || found->second.order != 0 ||
      found->second.report.place != Place::kGpu) {
    return;
  }
  found->second.order = ++last_order_;
  found->second.order_to = Place::kGpu;
  orders_.push_back({rank, last_order_, Place::kGpu});
}

bool MoveBook::Need(EngineId engine) {
  if (PassOnNeed(engine)) return true;
  if (!IsAway(engine) || Lasts(waits_, engine)) return false;
  if (!Begin(engine, Place::kGpu)) return false;
  Advance(engine);
  return true;
}

bool MoveBook::Leave(EngineId engine) {
  if (!MayBeAsked(engine)) return false;
  if (IsLed(engine)) return PassOnLeave(engine);
  if (LacksRanks(engine) || SumOf(engine, Place::kGpu).bytes == 0) {
    return false;
  }
  if (!Begin(engine, Place::kHost)) return false;
  Advance(engine);
  return true;
}

bool MoveBook::Drop(EngineId engine, const ParameterDrop& drop) {
  if (!MayDrop(engine).ok() || DroppedOf(engine).bytes >= drop.bytes) {
    return false;
  }
  if (!Begin(engine, Place::kDropped)) return false;
  moves_[engine].drop = drop;
  Advance(engine);
  return true;
}

bool MoveBook::Restore(EngineId engine) {
  if (DroppedOf(engine).bytes == 0) return false;
  if (!Begin(engine, Place::kGpu)) return false;
  Advance(engine);
  return true;
}

admission::EngineKv::Dropped MoveBook::DroppedOf(EngineId engine) const {
  admission::EngineKv::Dropped dropped;
  dropped.bytes = SumOf(engine, Place::kDropped).bytes;
  dropped.moves = moves_.count(engine) != 0;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine == engine && mover.report.place == Place::kDropped) {
      dropped.lender_pid = mover.report.lender_pid;
      dropped.of_bytes = uint64_t{mover.report.frozen_mib} << 20;
    }
  }
  const auto trouble = drop_troubles_.find(engine);
  if (trouble != drop_troubles_.end()) dropped.trouble = trouble->second;
  return dropped;
}

// Calls back the processes that an eviction has moved.
void MoveBook::Fail(EngineId engine, Move* move, const std::string& why,
                    absl::StatusCode code) {
  if (move->trouble.ok()) {
    move->trouble = absl::Status(code, why);
  } else if (move->to != move->asked) {
    move->trouble = absl::FailedPreconditionError(
        absl::StrCat(move->trouble.message(),
                     "; and a process of it could not come back: ", why));
  }
  move->to = Place::kGpu;
}

// Has the processes that have come back leave again. Otherwise two engines,
// each with memory on one GPU that the other engine lacks, would wait forever.
void MoveBook::LeaveAgain(EngineId engine, Move* move) {
  const bool spans = Any(engine, [](const Mover& mover) {
    return mover.report.seat == Seat::kRank;
  });
  if (spans && move->asked == Place::kGpu) move->to = Place::kHost;
}

void MoveBook::Gone(MoverId id) {
  const auto found = movers_.find(id);
  if (found == movers_.end()) return;
  const EngineId engine = found->second.engine;
  // A resting process may continue without the others.
  const bool was_moving =
      found->second.order != 0 || found->second.report.place == Place::kAtRest;
  movers_.erase(found);
  if (!IsLed(engine)) asked_.erase(engine);
  if (SumOf(engine, Place::kGpu).processes == 0) {
    stays_.erase(engine);
    waits_.erase(engine);
    drop_troubles_.erase(engine);
  }
  const auto move = moves_.find(engine);
  if (move != moves_.end() && was_moving) {
    Fail(engine, &move->second,
         "a process of the engine has ended, or lost its connection, while it "
         "moved");
  }
  Advance(engine);
}

// An engine of several processes cannot drop: they have each other's memory
// open.
absl::Status MoveBook::MayDrop(EngineId engine) const {
  const char* why = nullptr;
  if (SumOf(engine, Place::kGpu).processes != 1 ||
      Any(engine, [](const Mover& mover) {
        return mover.report.seat != Seat::kWhole;
      })) {
    why = "only an engine of one process can drop its parameters";
  } else if (IsAway(engine)) {
    why = "the engine is not on the GPU";
  }
  return why == nullptr ? absl::OkStatus() : absl::FailedPreconditionError(why);
}

void MoveBook::Ask(AskerId asker, EngineId engine, Place to,
                   const ParameterDrop& drop) {
  const auto answer = [&](const absl::Status& status) {
    answers_.push_back({asker, status});
  };
  const auto refuse = [&](absl::string_view why) {
    answer(absl::FailedPreconditionError(why));
  };
  const auto move = moves_.find(engine);
  if (move != moves_.end() && move->second.asked == to &&
      move->second.drop.lender.pid == drop.lender.pid &&
      move->second.drop.bytes == drop.bytes) {
    move->second.askers.push_back(asker);
    return;
  }
  if (move != moves_.end()) {
    return refuse("the engine's memory is being moved already: try again");
  }
  if (SumOf(engine, to).processes == 0 && IsLed(engine)) {
    return answer(absl::NotFoundError(
        "the engine is on several GPUs: the fineserved of its first rank's "
        "moves it"));
  }
  if (SumOf(engine, to).processes == 0) {
    return refuse(
        "no process of this engine has memory that can move (start it with "
        "FINESERVE_EVICT=auto)");
  }
  if (to == Place::kHost && LacksRanks(engine)) {
    return refuse(
        "some of the engine's ranks have not come to this daemon yet: try "
        "again");
  }
  if (to == Place::kDropped) {
    const absl::Status may = MayDrop(engine);
    if (!may.ok()) return refuse(may.message());
  }
  Move& begun = moves_[engine] = {{asker}, to, to, clock_->NowNs()};
  begun.drop = drop;
  Advance(engine);
}

void MoveBook::AskerGone(AskerId asker) {
  for (auto& [engine, move] : moves_) {
    std::erase(move.askers, asker);
  }
}

void MoveBook::Advance(EngineId engine) {
  const auto found = moves_.find(engine);
  if (found == moves_.end()) return;
  if (SendOrders(engine, &found->second)) return;
  const Move move = std::move(found->second);
  moves_.erase(found);
  Finish(engine, move);
}

// True if all processes come to rest before any goes on.
bool MoveBook::ComesToRest(EngineId engine) const {
  size_t count = 0;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.report.seat == Seat::kLed) continue;
    if (mover.report.can_rest != 1) return false;
    ++count;
  }
  return count > 1;
}

template <typename Is>
void MoveBook::OrderAll(EngineId engine, Move* move, Place to, Is is) {
  for (auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.report.seat == Seat::kLed ||
        mover.order != 0 || mover.has_failed || !is(mover.report)) {
      continue;
    }
    if (mover.report.place == Place::kHost && IsHere(mover.report)) {
      move->bytes += mover.report.out_bytes;
    }
    move->restores |=
        mover.report.place == Place::kDropped && to != Place::kDropped;
    move->has_ordered = true;
    mover.order = ++last_order_;
    mover.order_to = to;
    orders_.push_back({id, mover.order, to, move->drop});
  }
}

// Sends orders. False if no process has anything left to do.
bool MoveBook::SendOrders(EngineId engine, Move* move) {
  const auto any_moves = [&](auto towards) {
    return Any(engine, [&](const Mover& mover) {
      return mover.order != 0 && towards(mover.order_to);
    });
  };
  const bool pool_serves =
      move->to == Place::kHost && Any(engine, [](const Mover& mover) {
        return mover.report.seat == Seat::kPool &&
               mover.report.place == Place::kGpu;
      });
  // A process that has dropped some of its parameters may drop more.
  const bool drops = move->to == Place::kDropped && !move->has_ordered;
  OrderAll(engine, move, ComesToRest(engine) ? Place::kAtRest : move->to,
           [&](const abi::MoveReport& at) {
             return (at.place != move->to || drops) &&
                    at.place != Place::kAtRest &&
                    (at.seat == Seat::kPool || !pool_serves);
           });
  if (!pool_serves && !any_moves([&](Place to) { return to != move->to; })) {
    OrderAll(engine, move, move->to, [](const abi::MoveReport& at) {
      return at.place == Place::kAtRest;
    });
  }
  return any_moves([](Place) { return true; });
}

void MoveBook::Finish(EngineId engine, const Move& move) {
  for (auto& [id, mover] : movers_) {
    if (mover.engine == engine) mover.has_failed = false;
  }
  if (!move.trouble.ok()) {
    ++counts_.failed;
  } else if (move.moved != 0 && move.asked != Place::kDropped &&
             (move.asked != Place::kGpu || !move.restores)) {
    ++(move.asked == Place::kHost ? counts_.evicted : counts_.activated);
  }
  if (move.asked == Place::kHost) NoteEviction(engine, !move.trouble.ok());
  if (move.asked == Place::kGpu) NoteReturn(engine, move.to == Place::kHost);
  if (move.asked == Place::kDropped || move.restores) NoteDrop(engine, move);
  if (move.is_for_room && move.trouble.ok()) StayOut(engine);
  if (move.trouble.ok() && move.moved != 0) Learn(move);
  abi::MoveDone done = SumOf(engine, move.asked);
  done.moved = move.moved;
  for (const AskerId asker : move.askers) {
    answers_.push_back({asker, move.trouble, done});
  }
}

abi::MoveDone MoveBook::SumOf(EngineId engine, Place place) const {
  abi::MoveDone sum = {};
  sum.engine_id = slab::Number(engine);
  sum.place = place;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.report.seat == Seat::kLed ||
        mover.report.seat == Seat::kPool) {
      continue;
    }
    ++sum.processes;
    const abi::MoveReport& report = mover.report;
    const uint64_t dropped =
        report.place == Place::kDropped ? report.out_bytes : 0;
    sum.bytes += place == Place::kGpu    ? report.moving_bytes
                 : place == Place::kHost ? OutBytes(report)
                                         : dropped;
    sum.pinned_bytes += mover.report.pinned_bytes;
  }
  return sum;
}

MoveBook::Sizes MoveBook::SizesOf(EngineId engine) const {
  Sizes sizes;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine) continue;
    const abi::MoveReport& report = mover.report;
    sizes.longest_out = std::max(sizes.longest_out, OutBytes(report));
    if (!IsHere(report)) continue;
    sizes.here += report.moving_bytes;
    sizes.out += OutBytes(report);
  }
  sizes.longest_out = std::max(sizes.longest_out, sizes.out);
  return sizes;
}

uint64_t MoveBook::EvictedBytes(EngineId engine) const {
  return SizesOf(engine).out;
}

absl::optional<evict::Residence> MoveBook::ResidenceOf(EngineId engine) const {
  bool can_move = false;
  bool spans_gpus = false;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine) continue;
    const abi::MoveReport& report = mover.report;
    const bool is_led = report.seat == Seat::kLed;
    const bool none_orders = is_led && report.failed != 0 && report.order == 0;
    can_move = can_move || (IsHere(report) && !none_orders);
    spans_gpus = spans_gpus || is_led || report.seat == Seat::kRank;
  }
  if (!can_move || !MayBeAsked(engine)) return absl::nullopt;
  const Sizes sizes = SizesOf(engine);
  const uint64_t all = sizes.here + sizes.out;
  const auto move = moves_.find(engine);
  const bool is_asked = IsBelievedToLeave(engine);
  const bool moves = move != moves_.end() || is_asked;
  const bool leaves =
      is_asked || (move != moves_.end() && move->second.to == Place::kHost);
  return evict::Residence{moves ? 0 : sizes.here,
                          TimeOf(all),
                          leaves ? all : sizes.out,
                          /*floor_slabs=*/0,
                          spans_gpus,
                          move != moves_.end() &&
                              move->second.asked == Place::kGpu &&
                              !move->second.askers.empty(),
                          /*is_off=*/false,
                          Lasts(stays_, engine)};
}

// An engine that is late is expected soon: in an eighth of the whole time.
sched::Micros MoveBook::BackIn(EngineId engine) const {
  const uint64_t bytes = SizesOf(engine).longest_out;
  if (bytes == 0) return 0;
  const sched::Micros all = std::max<sched::Micros>(8, TimeOf(bytes));
  const auto move = moves_.find(engine);
  if (move == moves_.end() || move->second.to != Place::kGpu) return all;
  const auto passed = static_cast<sched::Micros>(
      (clock_->NowNs() - move->second.began_ns) / 1000);
  return std::max(all / 8, all - passed);
}

sched::Micros MoveBook::TimeOf(uint64_t bytes) const {
  const double pace = paces_.empty()
                          ? kUnknownPace
                          : *std::min_element(paces_.begin(), paces_.end());
  return static_cast<sched::Micros>(static_cast<double>(bytes) * pace / 1000);
}

bool MoveBook::AnyLeaves() const {
  for (const auto& [engine, asked] : asked_) {
    if (IsBelievedToLeave(engine)) return true;
  }
  return std::any_of(moves_.begin(), moves_.end(), [this](const auto& entry) {
    const Move& move = entry.second;
    return move.to == Place::kHost &&
           clock_->NowNs() - move.began_ns < kBelievedNs;
  });
}

bool MoveBook::AnyOtherComes(EngineId engine) const {
  return std::any_of(moves_.begin(), moves_.end(), [&](const auto& entry) {
    const Move& move = entry.second;
    return entry.first != engine && move.to == Place::kGpu &&
           clock_->NowNs() - move.began_ns < kBelievedNs;
  });
}

void MoveBook::Fills(EngineId engine) {
  const auto move = moves_.find(engine);
  if (move == moves_.end() || move->second.fill_ns != 0) return;
  move->second.fill_ns = clock_->NowNs();
}

bool MoveBook::Lasts(const Pauses& pauses, EngineId engine) const {
  const auto pause = pauses.find(engine);
  return pause != pauses.end() && clock_->NowNs() < pause->second.until_ns;
}

bool MoveBook::MayBeAsked(EngineId engine) const {
  const auto stay = stays_.find(engine);
  if (stay == stays_.end()) return true;
  const auto& [length_ns, until_ns] = stay->second;
  const uint64_t least_ns =
      std::max(kFirstStayNs, length_ns / kStayIfOthersWait);
  return clock_->NowNs() >= until_ns - length_ns + least_ns;
}

void MoveBook::NoteReturn(EngineId engine, bool left_again) {
  if (!left_again) {
    waits_.erase(engine);
    return;
  }
  const uint64_t now_ns = clock_->NowNs();
  Pause& wait = waits_[engine];
  wait.length_ns = std::clamp(2 * wait.length_ns, kFirstWaitNs, kLongestWaitNs);
  const uint64_t chance =
      base::Hash(absl::StrCat(now_ns, "/", slab::Number(engine)));
  wait.until_ns = now_ns + (chance >> 32) * wait.length_ns / (1ull << 32);
}

void MoveBook::NoteEviction(EngineId engine, bool failed) {
  const bool is_gone = SumOf(engine, Place::kGpu).processes == 0;
  if (!failed || is_gone) {
    stays_.erase(engine);
    return;
  }
  Pause& stay = stays_[engine];
  stay.length_ns = std::clamp(2 * stay.length_ns, kFirstStayNs, kLongestStayNs);
  stay.until_ns = clock_->NowNs() + stay.length_ns;
}

void MoveBook::NoteDrop(EngineId engine, const Move& move) {
  if (move.trouble.ok()) {
    drop_troubles_.erase(engine);
  } else if (SumOf(engine, Place::kGpu).processes != 0) {
    drop_troubles_[engine] = std::string(move.trouble.message());
  }
}

// Measures from the first fill, since the wait for room depends on other
// engines.
void MoveBook::Learn(const Move& move) {
  if (move.asked != Place::kGpu || move.bytes == 0) return;
  const uint64_t from_ns = move.fill_ns != 0 ? move.fill_ns : move.began_ns;
  paces_.push_back(static_cast<double>(clock_->NowNs() - from_ns) /
                   static_cast<double>(move.bytes));
  if (paces_.size() > kPaces) paces_.pop_front();
}

std::vector<MoveBook::Order> MoveBook::TakeOrders() {
  return std::exchange(orders_, {});
}

std::vector<MoveBook::Answer> MoveBook::TakeAnswers() {
  return std::exchange(answers_, {});
}

}  // namespace fineserve::server
