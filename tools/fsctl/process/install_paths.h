#ifndef TOOLS_FSCTL_PROCESS_INSTALL_PATHS_H_
#define TOOLS_FSCTL_PROCESS_INSTALL_PATHS_H_

#include <string>
#include <vector>

namespace fineserve::fsctl {

// Where libfineserve_shim.so may lie, in order: $FINESERVE_SHIM alone if set;
// else ../lib (build tree) and ../lib/fineserve, ../<libdir>/fineserve
// (installed), as seen from the folder of this executable.
std::vector<std::string> ShimPlaces();

// The first place that has the file; empty if none.
std::string FindShim();

// ../lib/emucuda beside this executable, whether it exists or not.
std::string EmucudaFolder();

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_INSTALL_PATHS_H_
