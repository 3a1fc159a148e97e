#ifndef DAEMON_CONTRACT_FINDING_ENGINE_SIGHTS_H_
#define DAEMON_CONTRACT_FINDING_ENGINE_SIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/contract/abi/scoreboard_reader.h"
#include "daemon/contract/abi/share_messages.h"

// Finds the engines of this machine that could read each other's parameters
// (design note 0048), in the same place as `fsctl drop` does.

namespace fineserve::finding {

// An engine of one process. Its daemon reports its name and GPU; the process
// itself reports everything else.
struct EngineSight {
  std::string name;
  std::string gpu;             // UUID
  uint64_t frozen_bytes = 0;   // of parameters alone; 0: it names none
  uint64_t dropped_bytes = 0;  // of these, that it reads from another process
  uint32_t readers = 0;        // processes that read its own
  abi::ShareAddress address = {};  // where it answers them
  uint32_t lender_pid = 0;         // whose memory it reads; 0: none
};

// Returns the address at which the scoreboard's process serves readers of its
// parameters; its pid is 0 if it lends none.
abi::ShareAddress AddressOf(const abi::ScoreboardSnapshot& scoreboard);

// Returns the living engines of the daemons that listen in `folder` as this
// user. Skips a daemon that does not answer within `patience`. Any thread.
std::vector<EngineSight> SeeEngines(const std::string& folder,
                                    absl::Duration patience);

}  // namespace fineserve::finding

#endif  // DAEMON_CONTRACT_FINDING_ENGINE_SIGHTS_H_
