#ifndef DAEMON_FINESERVED_ADMISSION_ROOMS_ENGINE_KV_H_
#define DAEMON_FINESERVED_ADMISSION_ROOMS_ENGINE_KV_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/contract/abi/kv_shape.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/peer_reads.h"

namespace fineserve::admission {

// An engine of the fleet, and the KV that its requests need.
struct EngineNeed {
  std::string name;
  uint64_t promised_tokens = 0;  // to those that run
  uint64_t wanted_tokens = 0;    // by those and the prompts that wait for it
};

// The pool's figures about one engine's KV. An engine without KV has neither a
// view nor leased bytes.
struct EngineKv {
  // Counted in tokens of the engine's own format.
  struct View {
    uint64_t tokens = 0;       // that it can be sure of
    uint64_t most_tokens = 0;  // that it can ever have
    uint64_t used_tokens = 0;  // as its engine says
    uint64_t token_bytes = 0;  // on this GPU; 0: not known now
    // The shape in which the engine's requests take blocks, each of
    // `block_tokens` tokens.
    abi::KvShape shape = {};
    uint32_t block_tokens = 0;
  };
  absl::optional<View> view;  // of one that is active or suspended
  // Approximate time until its memory is back on the GPU; 0 if it is there.
  sched::Micros back_in = 0;
  uint64_t leased_bytes = 0;  // in whole slabs
  // Weights that the engine has dropped, and reads from another GPU.
  struct Dropped {
    uint64_t bytes = 0;        // 0: it has its own
    uint32_t lender_pid = 0;   // 0: not known
    bool moves = false;        // its memory is on its way
    std::string trouble = {};  // why its last drop or restoration failed
    uint64_t of_bytes = 0;     // that it could drop in all, `bytes` included
  };
  Dropped dropped = {};
  sched::PeerReads peer = {};  // what it reads of them in each step
  uint64_t steps = 0;          // that it has ended, as its view says
};

// Asks the pool about all engines of the daemon at once, because the KV that an
// engine can be sure of depends on the others: it gets its fair share given
// what the others want, and nothing that they were promised. Returns one
// EngineKv for each need, in the same order.
using AskPool =
    std::function<std::vector<EngineKv>(const std::vector<EngineNeed>&)>;

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_ROOMS_ENGINE_KV_H_
