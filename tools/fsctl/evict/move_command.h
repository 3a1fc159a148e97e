#ifndef TOOLS_FSCTL_EVICT_MOVE_COMMAND_H_
#define TOOLS_FSCTL_EVICT_MOVE_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/move_messages.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Result of `fsctl evict` or `fsctl activate`.
std::string MoveText(const std::string& engine, const abi::MoveDone& done);
// Output of a drop: the memory that the engine now reads from the lender.
std::string DropText(const std::string& engine, const abi::MoveDone& done,
                     uint32_t lender_pid);
std::string MoveJson(const std::string& engine, const abi::MoveDone& done);

// A daemon's part of the machine's store.
struct StoreSight {
  std::string gpu;  // its UUID
  uint32_t daemon_pid = 0;
  abi::StoreAnswer store = {};
  // Bytes in other daemons' files that this daemon's engines need.
  uint64_t others_bytes = 0;
};

// Result of `fsctl store`, for at least one daemon.
std::string StoreText(const std::vector<StoreSight>& stores);
std::string StoreJson(const std::vector<StoreSight>& stores);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EVICT_MOVE_COMMAND_H_
