#ifndef DAEMON_FINESERVED_ADMISSION_ROOMS_SET_ROOMS_H_
#define DAEMON_FINESERVED_ADMISSION_ROOMS_SET_ROOMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fineserved/admission/rooms/engine_kv.h"
#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::admission {

// An engine of this daemon; its ReplicaId is its place in the daemon's list.
struct ServingEngine {
  std::string name;
  sched::ModelId model{0};
  uint64_t kv_token_bytes = 0;  // of an engine without a view; 0: unknown
  uint32_t block_tokens = 0;
  uint32_t max_batch = 0;
  bool known = false;      // to the scheduler
  bool takes = false;      // new requests
  uint64_t silent_ns = 0;  // it does not serve since then; 0: it does
};

// Sets in the scheduler how much KV each known engine can be sure of, and
// returns the pool's figures about all engines. An engine that takes no
// requests gets no room. Pure.
std::vector<EngineKv> SetRooms(const std::vector<ServingEngine>& engines,
                               const AskPool& ask,
                               sched::LocalScheduler* scheduler);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ROOMS_SET_ROOMS_H_
