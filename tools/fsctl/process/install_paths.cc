#include "tools/fsctl/process/install_paths.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

namespace fineserve::fsctl {
namespace {

// The installation prefix: the parent of the folder of this executable.
std::filesystem::path Prefix() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path().parent_path();
}

}  // namespace

std::vector<std::string> ShimPlaces() {
  const char* chosen = getenv("FINESERVE_SHIM");
  if (chosen != nullptr && chosen[0] != '\0') return {chosen};
  std::vector<std::string> places;
  for (const char* folder :
       {"lib", "lib/fineserve", FINESERVE_LIBDIR "/fineserve"}) {
    const std::string place = Prefix() / folder / kShimName;
    if (place != (places.empty() ? "" : places.back())) places.push_back(place);
  }
  return places;
}

std::string FindShim() {
  for (const std::string& place : ShimPlaces()) {
    if (access(place.c_str(), R_OK) == 0) return place;
  }
  return "";
}

std::string EmucudaFolder() { return Prefix() / "lib" / "emucuda"; }

}  // namespace fineserve::fsctl
