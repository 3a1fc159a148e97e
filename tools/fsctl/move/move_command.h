#ifndef TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_
#define TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_

#include <string>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/move_messages.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Result of `fsctl evict` or `fsctl activate`.
std::string MoveText(const std::string& engine, const abi::MoveDone& done);
// Output of a drop, for what it reads from the lender now.
std::string DropText(const std::string& engine, const abi::MoveDone& done,
                     uint32_t lender_pid);
std::string MoveJson(const std::string& engine, const abi::MoveDone& done);

// Result of `fsctl store`.
// `others_bytes` are needed by this daemon's engines, and in other daemons'
// stores.
std::string StoreText(const abi::StoreAnswer& store, uint64_t others_bytes);
std::string StoreJson(const abi::StoreAnswer& store, uint64_t others_bytes);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_
