#ifndef TOOLS_FSCTL_UPGRADE_ADOPTION_H_
#define TOOLS_FSCTL_UPGRADE_ADOPTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/contract/abi/table_reader.h"

namespace fineserve::fsctl {

// True if the process that runs this program (ProcessImage) is still alive.
using Lives = std::function<bool(uint32_t pid, uint64_t image)>;

// Outcome for the engines and leases that a daemon has left.
struct Adoption {
  uint32_t engines = 0;  // that still live
  uint32_t slabs = 0;    // that these held
  // Errors of the next daemon, one line each.
  std::vector<std::string> problems;
};

// Compares the table that a daemon left with the next daemon's soon after. An
// engine may have returned slabs in between, and others may have got them, by
// leases with later numbers; nothing else may have happened to a lease. Pure.
Adoption CompareTables(const abi::TableSnapshot& left,
                       const abi::TableSnapshot& found, const Lives& lives);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_ADOPTION_H_
