#include "tools/fsctl/processes/install_paths.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace fineserve::fsctl {
namespace {

// Returns the folder of this executable.
std::filesystem::path Here() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

// The installation prefix.
std::filesystem::path Prefix() { return Here().parent_path(); }

}  // namespace

std::vector<std::string> ShimPlaces() {
  const char* chosen = getenv("FINESERVE_SHIM");
  if (chosen != nullptr && chosen[0] != '\0') return {chosen};
  std::vector<std::string> places;
  for (const char* folder :
       {"lib", "lib/fineserve", FINESERVE_LIBDIR "/fineserve",
        FINESERVE_PRIVATE_LIBDIR}) {
    const std::string place = Prefix() / folder / kShimName;
    if (std::find(places.begin(), places.end(), place) == places.end()) {
      places.push_back(place);
    }
  }
  return places;
}

std::string FindShim() {
  for (const std::string& place : ShimPlaces()) {
    if (access(place.c_str(), R_OK) == 0) return place;
  }
  return "";
}

std::string FindDaemonProgram() {
  const std::string beside = Here() / "fineserved";
  return access(beside.c_str(), X_OK) == 0 ? beside : "fineserved";
}

}  // namespace fineserve::fsctl
