#include "daemon/server/move_book.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/printable.h"

namespace fineserve::server {

using abi::Place;
using slab::EngineId;

namespace {

// ns for each byte until an activation was seen: 50 GB/s, a link of the fifth
// generation. Too slow a guess would refuse requests that teach a better one.
constexpr double kUnknownPace = 0.02;
constexpr size_t kPaces = 8;
// Pauses after evictions of an engine that failed: the first, and the longest.
constexpr uint64_t kFirstStayNs = 10'000'000'000;
constexpr uint64_t kLongestStayNs = 640'000'000'000;

}  // namespace

void MoveBook::Report(MoverId id, EngineId engine,
                      const abi::MoveReport& report) {
  Mover& mover = movers_[id];
  // It was sent before its order arrived; the result comes.
  if (mover.order != 0 && report.order != mover.order) return;
  const uint32_t order = std::exchange(mover.order, 0);
  const bool came =
      mover.order_to == Place::kGpu || mover.report.place == Place::kHost;
  mover.engine = engine;
  mover.report = report;
  if (report.is_needed != 0) Begin(engine, Place::kGpu);
  const auto move = moves_.find(engine);
  if (move == moves_.end() || order == 0 || report.order != order) {
    return Advance(engine);
  }
  if (report.failed != 0) {
    mover.has_failed = came;
    Fail(engine, &move->second, abi::Printable(report.why));
  } else if (report.place == move->second.asked) {
    ++move->second.moved;
  }
  Advance(engine);
}

bool MoveBook::Begin(EngineId engine, Place to) {
  return moves_.try_emplace(engine, Move{{}, to, to, clock_->NowNs()}).second;
}

bool MoveBook::Need(EngineId engine) {
  if (EvictedBytes(engine) == 0) return false;
  if (!Begin(engine, Place::kGpu)) return false;
  Advance(engine);
  return true;
}

bool MoveBook::Leave(EngineId engine) {
  if (Stays(engine) || SumOf(engine, Place::kGpu).bytes == 0) return false;
  if (!Begin(engine, Place::kHost)) return false;
  Advance(engine);
  return true;
}

// Calls back the processes that an eviction has moved.
void MoveBook::Fail(EngineId engine, Move* move, const std::string& why) {
  if (move->trouble.ok()) {
    move->trouble = absl::FailedPreconditionError(why);
  } else if (move->to != move->asked) {
    move->trouble = absl::FailedPreconditionError(
        absl::StrCat(move->trouble.message(),
                     "; and a process of it could not come back: ", why));
  }
  move->to = Place::kGpu;
}

void MoveBook::Gone(MoverId id) {
  const auto found = movers_.find(id);
  if (found == movers_.end()) return;
  const EngineId engine = found->second.engine;
  // One that rests may go on without the others.
  const bool was_moving =
      found->second.order != 0 || found->second.report.place == Place::kAtRest;
  movers_.erase(found);
  if (SumOf(engine, Place::kGpu).processes == 0) stays_.erase(engine);
  const auto move = moves_.find(engine);
  if (move != moves_.end() && was_moving) {
    Fail(engine, &move->second,
         "a process of the engine has ended, or lost its connection, while it "
         "moved");
  }
  Advance(engine);
}

void MoveBook::Ask(AskerId asker, EngineId engine, Place to) {
  const auto refuse = [&](const char* why) {
    answers_.push_back({asker, absl::FailedPreconditionError(why)});
  };
  const auto move = moves_.find(engine);
  if (move != moves_.end() && move->second.asked == to) {
    move->second.askers.push_back(asker);
    return;
  }
  if (move != moves_.end()) {
    return refuse("the engine's memory is being moved already: try again");
  }
  if (SumOf(engine, to).processes == 0) {
    return refuse(
        "no process of this engine has memory that can move (start it with "
        "FINESERVE_EVICT=auto)");
  }
  moves_[engine] = {{asker}, to, to, clock_->NowNs()};
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

// Whether each process comes to rest before any goes on from there.
bool MoveBook::ComesToRest(EngineId engine) const {
  size_t count = 0;
  for (const auto& [id, mover] : movers_) {
    if (mover.engine != engine) continue;
    if (mover.report.can_rest != 1) return false;
    ++count;
  }
  return count > 1;
}

template <typename Is>
void MoveBook::OrderAll(EngineId engine, Move* move, Place to, Is is) {
  for (auto& [id, mover] : movers_) {
    if (mover.engine != engine || mover.order != 0 || mover.has_failed ||
        !is(mover.report.place)) {
      continue;
    }
    if (mover.report.place == Place::kHost) {
      move->bytes += mover.report.out_bytes;
    }
    mover.order = ++last_order_;
    mover.order_to = to;
    orders_.push_back({id, mover.order, to});
  }
}

// False if no process has anything left to do.
bool MoveBook::SendOrders(EngineId engine, Move* move) {
  const auto any_moves = [&](auto towards) {
    return std::any_of(movers_.begin(), movers_.end(), [&](const auto& entry) {
      const Mover& mover = entry.second;
      return mover.engine == engine && mover.order != 0 &&
             towards(mover.order_to);
    });
  };
  OrderAll(engine, move, ComesToRest(engine) ? Place::kAtRest : move->to,
           [&](Place place) {
             return place != move->to && place != Place::kAtRest;
           });
  if (!any_moves([&](Place to) { return to != move->to; })) {
    OrderAll(engine, move, move->to,
             [](Place place) { return place == Place::kAtRest; });
  }
  return any_moves([](Place) { return true; });
}

void MoveBook::Finish(EngineId engine, const Move& move) {
  for (auto& [id, mover] : movers_) {
    if (mover.engine == engine) mover.has_failed = false;
  }
  if (!move.trouble.ok()) {
    ++counts_.failed;
  } else if (move.moved != 0) {
    ++(move.asked == Place::kHost ? counts_.evicted : counts_.activated);
  }
  if (move.asked == Place::kHost) NoteEviction(engine, !move.trouble.ok());
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
    if (mover.engine != engine) continue;
    ++sum.processes;
    sum.bytes += place == Place::kHost ? mover.report.out_bytes
                                       : mover.report.moving_bytes;
    sum.pinned_bytes += mover.report.pinned_bytes;
  }
  return sum;
}

uint64_t MoveBook::EvictedBytes(EngineId engine) const {
  return SumOf(engine, Place::kHost).bytes;
}

absl::optional<evict::Residence> MoveBook::ResidenceOf(EngineId engine) const {
  const abi::MoveDone here = SumOf(engine, Place::kGpu);
  if (here.processes == 0 || Stays(engine)) return absl::nullopt;
  const uint64_t all = here.bytes + EvictedBytes(engine);
  const auto move = moves_.find(engine);
  const bool moves = move != moves_.end();
  const bool leaves = moves && move->second.to == Place::kHost;
  return evict::Residence{moves ? 0 : here.bytes, TimeOf(all),
                          leaves ? all : EvictedBytes(engine)};
}

// One that is late is expected soon.
sched::Micros MoveBook::BackIn(EngineId engine) const {
  const uint64_t bytes = EvictedBytes(engine);
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

bool MoveBook::Stays(EngineId engine) const {
  const auto stay = stays_.find(engine);
  return stay != stays_.end() && clock_->NowNs() < stay->second.until_ns;
}

void MoveBook::NoteEviction(EngineId engine, bool failed) {
  const bool is_gone = SumOf(engine, Place::kGpu).processes == 0;
  if (!failed || is_gone) {
    stays_.erase(engine);
    return;
  }
  Stay& stay = stays_[engine];
  stay.pause_ns = std::clamp(2 * stay.pause_ns, kFirstStayNs, kLongestStayNs);
  stay.until_ns = clock_->NowNs() + stay.pause_ns;
}

// The wait for room before it is another's doing.
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
