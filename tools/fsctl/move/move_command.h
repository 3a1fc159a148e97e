#ifndef TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_
#define TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_

#include <string>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/move_messages.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Result of `fsctl evict` or `fsctl activate`.
std::string MoveText(const std::string& engine, const abi::MoveDone& done);
std::string MoveJson(const std::string& engine, const abi::MoveDone& done);

// Result of `fsctl store`.
// `others_bytes` are needed by this daemon's engines, and in other daemons'
// stores.
std::string StoreText(const abi::StoreAnswer& store, uint64_t others_bytes);
std::string StoreJson(const abi::StoreAnswer& store, uint64_t others_bytes);

struct MoveOptions {
  std::string engine;  // its name or number
  int timeout_s = 600;
};

// `fsctl evict` and `fsctl activate`: moves what an engine keeps on the GPU to
// the host, or back. Returns the exit code.
int RunMove(const Globals& globals, const MoveOptions& options, abi::Place to);

// `fsctl store`: what a daemon keeps in host memory of evicted engines. Returns
// the exit code.
int RunStore(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_MOVE_MOVE_COMMAND_H_
