#include "daemon/fineserved/pool_service/pool_kv.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "daemon/fineserved/admission/rooms/kv_in_pool.h"
#include "daemon/fineserved/pool_service/pool_service.h"

namespace fineserve::server {

namespace {

void LimitToGroup(const PoolService& pool, const admission::EngineNeed& need,
                  admission::EngineKv* kv) {
  const auto id = pool.state().Find(need.name, geteuid());
  const ViewScoreboardMemfd* const says = id ? pool.ScoreboardOf(*id) : nullptr;
  if (says == nullptr || !kv->view) return;
  const uint64_t sure_blocks =
      need.promised_tokens == 0 ? says->FirstBlocks() : says->SureBlocks();
  admission::LimitToGroup(sure_blocks, says->MostBlocks(), &*kv->view);
}

}  // namespace

std::vector<admission::EngineKv> KvInPool(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs) {
  std::vector<admission::EngineKv> kv =
      admission::KvInPool(pool.state(), geteuid(), needs,
                          [&](slab::EngineId engine, slab::SlabId slab) {
                            return pool.ScoreboardOf(engine)->UsedBlocks(slab);
                          });
  for (size_t i = 0; i < needs.size(); ++i) {
    LimitToGroup(pool, needs[i], &kv[i]);
  }
  return kv;
}

std::map<slab::EngineId, slab::SureBlocks> SureOfGroups(
    const PoolService& pool, const std::vector<admission::EngineNeed>& needs) {
  return admission::SureOfGroups(
      pool.state(), geteuid(), needs,
      [&](slab::EngineId engine, slab::SlabId slab) {
        return pool.ScoreboardOf(engine)->UsedBlocks(slab);
      });
}

bool UsesKv(const PoolService& pool, slab::EngineId engine) {
  const ViewScoreboardMemfd* const scoreboard = pool.ScoreboardOf(engine);
  const slab::SlabManager& slabs = pool.slabs();
  if (scoreboard == nullptr) return false;
  for (uint32_t i = 0; i < slabs.slab_count(); ++i) {
    const slab::SlabId slab{i};
    if (slabs.word(slab).engine == slab::Number(engine) &&
        scoreboard->UsedBlocks(slab) != 0) {
      return true;
    }
  }
  return false;
}

uint64_t PoolBytes(const PoolService& pool) {
  const slab::PoolState& state = pool.state();
  return pool.slab_bytes() *
         std::max(state.present_slabs(), state.wanted_slabs());
}

uint64_t LeasedBytes(const PoolService& pool) {
  const slab::SlabManager& slabs = pool.slabs();
  const uint32_t not_leased =
      slabs.free_count() + slabs.zeroing_count() + slabs.absent_count();
  return pool.slab_bytes() * (slabs.slab_count() - not_leased);
}

}  // namespace fineserve::server
