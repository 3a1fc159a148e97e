#include "shim/group/pool_sight.h"

#include <algorithm>

#include "daemon/abi/engine_entry.h"

namespace fineserve::shim {

void PoolSight::Look(const void* table) {
  const auto* header = static_cast<const abi::TableHeader*>(table);
  const auto* entries = reinterpret_cast<const abi::EngineEntry*>(
      static_cast<const char*>(table) + header->engines_offset);
  for (uint32_t slot = 0; slot < abi::kEngineCapacity; ++slot) {
    seen_[slot] = {};
    abi::EngineRecord record;
    if (!abi::CopyRecord(entries[slot], &record)) continue;
    const abi::ViewRecord& view = record.view;
    if (record.state != abi::EngineState::kAlive ||
        view.state != abi::ViewState::kActive) {
      continue;
    }
    seen_[slot] = {record.id, view.offer, view.target,
                   view.leased - std::min(view.leased, view.returning),
                   view.floor};
  }
}

bool PoolSight::CanSpare(uint32_t engine, uint32_t slot) const {
  const uint64_t mine = seen_[slot].open;
  for (const Seen& other : seen_) {
    if (other.engine != engine) continue;
    return other.open > other.target ||
           (other.open > other.floor && other.open >= mine + 2);
  }
  return false;
}

}  // namespace fineserve::shim
