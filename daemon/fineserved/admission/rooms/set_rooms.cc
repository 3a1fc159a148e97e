#include "daemon/fineserved/admission/rooms/set_rooms.h"

#include <algorithm>

namespace fineserve::admission {

using sched::ReplicaId;

namespace {

// An engine whose KV is not in the pool is limited by its batch alone.
constexpr uint64_t kUnknownTokens = uint64_t{1} << 40;

// Returns the KV that requests can fill now, and the most that the engine can
// ever have.
sched::KvRoom RoomOf(const EngineKv& kv, const ServingEngine& engine,
                     const sched::EngineWork& work) {
  if (kv.view) {
    // Running requests may have outgrown the KV that was kept free for them.
    const uint64_t beyond =
        kv.view->used_tokens - std::min(kv.view->used_tokens, work.held_tokens);
    const uint64_t tokens = kv.view->tokens;
    return {tokens - std::min(tokens, beyond),
            kv.view->most_tokens,
            engine.block_tokens,
            kv.view->shape,
            kv.view->block_tokens,
            /*closed=*/false};
  }
  const bool known = kv.leased_bytes != 0 && engine.kv_token_bytes != 0;
  const uint64_t tokens =
      known ? kv.leased_bytes / engine.kv_token_bytes : kUnknownTokens;
  return {tokens, tokens, engine.block_tokens, {}, 0, /*closed=*/false};
}

sched::EngineWork WorkOf(const sched::LocalScheduler& scheduler,
                         const ServingEngine& engine, ReplicaId id) {
  if (const auto work = scheduler.WorkOf(id)) return *work;
  return {0, 0, scheduler.Figures(engine.model).queued_tokens};
}

}  // namespace

std::vector<EngineKv> SetRooms(const std::vector<ServingEngine>& engines,
                               const AskPool& ask,
                               sched::LocalScheduler* scheduler) {
  std::vector<sched::EngineWork> works;
  std::vector<EngineNeed> needs;
  for (uint32_t i = 0; i < engines.size(); ++i) {
    const sched::EngineWork work = WorkOf(*scheduler, engines[i], ReplicaId{i});
    const bool starts = engines[i].takes && work.running < engines[i].max_batch;
    const uint64_t waiting = starts ? work.queue_tokens : 0;
    needs.push_back(
        {engines[i].name, work.held_tokens, work.held_tokens + waiting});
    works.push_back(work);
  }
  std::vector<EngineKv> kv = ask(needs);
  for (size_t i = 0; i < engines.size(); ++i) {
    if (!engines[i].known) continue;
    sched::KvRoom room = RoomOf(kv[i], engines[i], works[i]);
    room.back_in = kv[i].back_in;
    room.peer = kv[i].peer;
    if (!engines[i].takes) {
      room.tokens = 0;
      room.closed = true;
    }
    // Cannot fail: the engine's model is known and never changes.
    scheduler
        ->SetEngine(ReplicaId{static_cast<uint32_t>(i)}, engines[i].model, room)
        .IgnoreError();
  }
  return kv;
}

}  // namespace fineserve::admission
