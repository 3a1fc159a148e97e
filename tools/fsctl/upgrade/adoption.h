#ifndef TOOLS_FSCTL_UPGRADE_ADOPTION_H_
#define TOOLS_FSCTL_UPGRADE_ADOPTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/contract/abi/table_reader.h"

namespace fineserve::fsctl {

// True if process `pid` is alive and still runs the program `image`
// (ProcessImage).
using Lives = std::function<bool(uint32_t pid, uint64_t image)>;

// Outcome for the engines and leases that a daemon left behind.
struct Adoption {
  uint32_t engines = 0;  // that still live
  uint32_t slabs = 0;    // that these held
  // Errors of the next daemon, one line each.
  std::vector<std::string> problems;
};

// Compares the table that a daemon left with the table of the next daemon soon
// after. Engines may have returned slabs in between, and other engines may have
// got them, by leases with later numbers; no lease may have changed in another
// way. Pure.
Adoption CompareTables(const abi::TableSnapshot& left,
                       const abi::TableSnapshot& found, const Lives& lives);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_ADOPTION_H_
