#ifndef TOOLS_FSCTL_PROCESSES_INSTALL_PATHS_H_
#define TOOLS_FSCTL_PROCESSES_INSTALL_PATHS_H_

#include <string>
#include <vector>

namespace fineserve::fsctl {

inline constexpr char kShimName[] = "libfineserve_shim.so";

// Candidate paths of the shim, in order: $FINESERVE_SHIM alone if it is set;
// else ../lib (build tree), ../lib/fineserve, ../<libdir>/fineserve (installed)
// and ../<private libdir> (packages), relative to the folder of this
// executable.
std::vector<std::string> ShimPlaces();

// Returns the first of ShimPlaces that exists; empty if none does.
std::string FindShim();

// Returns the path of fineserved beside this executable; if there is none,
// "fineserved", to be looked up in $PATH.
std::string FindDaemonProgram();

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESSES_INSTALL_PATHS_H_
