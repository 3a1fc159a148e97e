#ifndef TOOLS_FSCTL_STATUS_FULL_DISKS_H_
#define TOOLS_FSCTL_STATUS_FULL_DISKS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::fsctl {

struct FullDisk {
  std::string path;  // something that is written there
  uint64_t free_bytes = 0;
  double for_s = -1;  // since it has been full; negative: not known
};

// Returns, each once, the file systems with less than base::kFullBelowBytes
// free that hold one of these folders, or a file that one of these processes
// has open for writing.
std::vector<FullDisk> FullDisks(const std::vector<std::string>& folders,
                                const std::vector<pid_t>& writers);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_FULL_DISKS_H_
