#ifndef TOOLS_FSCTL_UPGRADE_UPGRADE_H_
#define TOOLS_FSCTL_UPGRADE_UPGRADE_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct UpgradeOptions {
  bool check = false;  // changes nothing
  std::string binary;  // empty: what is installed now
  double timeout_s = 30;
};

// Beside those of exit_code.h.
inline constexpr int kExitWentBack = 4;  // the former release serves again
inline constexpr int kExitNoneServes = 5;

// `fsctl upgrade`: replaces the daemon of a pool by another release while its
// engines serve, or goes back to the former one. Returns the exit code.
int RunUpgrade(const Globals& globals, const UpgradeOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_UPGRADE_H_
