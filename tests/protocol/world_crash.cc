// The part of World in which daemons end and others take the pool over.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/table_reader.h"
#include "tests/protocol/world.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {
namespace {

using abi::SlabState;
using shim::ViewLeases;
using slab::Number;
using slab::SlabId;

bool IsTheDaemons(Act act) {
  switch (act) {
    case Act::kDeliver:
    case Act::kFill:
    case Act::kPoll:
    case Act::kWait:
    case Act::kBury:
    case Act::kRestart:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Returns the events, plus, for each event that a daemon handles, that event
// with the daemon's death after each of its actions.
std::vector<Event> World::WithCrashes(std::vector<Event> events) const {
  if (crashes_ >= options_.crashes) return events;
  for (size_t i = 0, all = events.size(); i < all; ++i) {
    if (!IsTheDaemons(events[i].act)) continue;
    for (uint8_t deeds = 0; deeds <= kMostDeeds; ++deeds) {
      events.push_back({events[i].act, events[i].engine, deeds});
    }
  }
  return events;
}

// True if the daemon performs one more action before it dies.
bool World::Lives() {
  if (deeds_left_ == UINT32_MAX) return true;
  if (deeds_left_ == 0) return false;
  --deeds_left_;
  return true;
}

abi::SlabWord World::WordOf(uint32_t slab) {
  return abi::SlabWord::Unpack(table_.slabs()[slab].word.load());
}

// Kills the daemon. Messages in transit are lost; fills that the device has
// received go on.
void World::Crash() {
  ++crashes_;
  serves_ = false;
  pool_ = slab::PoolState(pool_.geometry(), options_.slabs);  // forgotten
  deeds_left_ = UINT32_MAX;
  for (SlabId slab : std::exchange(filling_, {})) {
    late_fills_.emplace_back(slab, daemon_);
  }
  for (Engine& e : engines_) {
    e.joined = false;
    e.outbox.clear();
  }
}

// Starts a daemon as fineserved does when its parent has kept a pool.
void World::Restart() {
  auto kept = abi::TableReader::Read(table_.header(), table_.bytes());
  if (!kept.ok()) return Fail(std::string(kept.status().message()));
  if (options_.takes_asked_back) {
    for (abi::SlabSnapshot& slab : kept->slabs) {
      if (slab.word.state == SlabState::kReturning) {
        slab.word = {SlabState::kZeroing, 0, 0};
      }
    }
  }
  absl::StatusOr<slab::PoolState> adopted =
      slab::PoolState::Adopt(*kept, now_ns_);
  if (!adopted.ok()) return Fail(std::string(adopted.status().message()));
  pool_ = *std::move(adopted);
  serves_ = true;
  ++daemon_;
  if (options_.named_first)
    table_.header()->daemon_pid = static_cast<uint32_t>(daemon_);
  Execute();
  if (Lives()) table_.header()->daemon_pid = static_cast<uint32_t>(daemon_);
  pool_.HoldBackFills();
  Execute();
  for (const slab::PoolState::Member& member : pool_.Members()) {
    for (Engine& e : engines_) {
      if (e.alive || e.pid != member.pid) continue;
      e.buried = true;
      if (!options_.no_meeting) pool_.Exited(e.pid, now_ns_);
    }
  }
  Execute();
  touched_ = true;
}

// Reconnects the engine as EngineView and DaemonLink do on another connection.
void World::Join(Engine* e) {
  using Hold = ViewLeases::Hold;
  e->joined = true;
  if (options_.no_repeating) return;
  if (e->suspended) {
    e->outbox.push_back({Message::kSuspend, 0, 0});
    return;
  }
  e->leases.SendAgain();
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kDone, v)) != 0;) {
    ReturnSlab(e, v);
  }
  e->outbox.push_back({Message::kWant, e->wanted, 0});
}

// Keeps slabs that could not be returned: they stay the engine's.
void World::KeepLeases(Engine* e) {
  using Hold = ViewLeases::Hold;
  for (uint32_t v = 0; (v = e->leases.Next(Hold::kDone, v)) != 0;) {
    e->leases.Relink(v);
    Require(e->blocks.Link(v));
    e->leases.Report(v);
  }
}

void World::LateFill() {
  const auto [slab, daemon] = late_fills_.front();
  late_fills_.erase(late_fills_.begin());
  const abi::SlabWord word = WordOf(Number(slab));
  const bool used =
      std::any_of(engines_.begin(), engines_.end(),
                  [&](const Engine& e) { return Number(e.id) == word.engine; });
  if (used) {
    Fail(absl::StrCat("a daemon that has ended zeroed slab ", Number(slab),
                      ", which is engine ", word.engine, "'s"));
  }
  dirty_[Number(slab)] = false;
}

}  // namespace fineserve::protocol
