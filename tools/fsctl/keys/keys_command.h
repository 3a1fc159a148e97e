#ifndef TOOLS_FSCTL_KEYS_KEYS_COMMAND_H_
#define TOOLS_FSCTL_KEYS_KEYS_COMMAND_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl keys`: this machine's keys, and whose it trusts. One of these is
// given. Returns the exit code.
struct KeysOptions {
  enum class Do { kShow, kNew, kTrust, kDistrust };
  Do what = Do::kShow;
  std::string machine;
  std::string key;
  bool replace = false;
};
int RunKeys(const Globals& globals, const KeysOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_KEYS_KEYS_COMMAND_H_
