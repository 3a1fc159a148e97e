#include "daemon/fineserved/pool_service/pool_meter.h"

#include "daemon/contract/abi/slab_table.h"

namespace fineserve::server {

using abi::SlabState;
using slab::Number;

PoolMeter::PoolMeter(const slab::PoolState& pool, uint64_t now_ns)
    : last_engine_(pool.last_engine()) {
  for (uint32_t i = 0; i < pool.slabs().slab_count(); ++i) {
    const abi::SlabWord word = pool.slabs().word(slab::SlabId{i});
    slabs_.push_back({word.state, now_ns, word.engine});
  }
}

void PoolMeter::Saw(const slab::SlabChange& change, uint64_t now_ns) {
  Slab& slab = slabs_[Number(change.slab)];
  const SlabState to = change.word.state;
  const uint64_t took_ns = now_ns - slab.since_ns;
  if (slab.state == SlabState::kReturning && to == SlabState::kZeroing) {
    ask_back_.Add(took_ns);
  }
  if (slab.state == SlabState::kZeroing && to == SlabState::kFree) {
    zeroing_.Add(took_ns);
  }
  if (slab.state == SlabState::kFree && change.word.engine != 0) {
    hand_overs_ +=
        slab.last_engine != 0 && slab.last_engine != change.word.engine;
    slab.last_engine = change.word.engine;
  }
  slab.state = to;
  slab.since_ns = now_ns;
}

void PoolMeter::SawEngines(const std::set<slab::EngineId>& engines,
                           const slab::PoolState& pool) {
  for (const slab::EngineId engine : engines) {
    if (Number(engine) <= last_engine_) continue;
    last_engine_ = Number(engine);
    const std::string name = pool.NameOf(engine);
    const bool is_one_too_many =
        starts_.size() >= kMostNames && starts_.count(name) == 0;
    ++starts_[is_one_too_many ? "other" : name];
  }
}

}  // namespace fineserve::server
