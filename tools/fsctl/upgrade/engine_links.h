#ifndef TOOLS_FSCTL_UPGRADE_ENGINE_LINKS_H_
#define TOOLS_FSCTL_UPGRADE_ENGINE_LINKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/abi/table_reader.h"

namespace fineserve::fsctl {

// A process gets another engine scoreboard with each connection: which one each
// process had at some moment (the memfd's inode), by pid.
using Links = std::map<uint32_t, uint64_t>;
// Returns the links of all engines' processes. A process that this user may not
// inspect is left out.
Links LinksOf(const abi::TableSnapshot& table);

// The processes that have joined the daemon since, and those that have not.
struct Joining {
  uint32_t joined = 0;
  // Processes with a view, which join by themselves, but have not: "pid 4711
  // (engine chat)".
  std::vector<std::string> missing;
  // Processes that join when they next ask for something (whole slabs), or when
  // they are continued.
  uint32_t later = 0;
};
Joining JoinedSince(const Links& before, const abi::TableSnapshot& table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_UPGRADE_ENGINE_LINKS_H_
