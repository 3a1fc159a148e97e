#include "daemon/config/fleet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fineserve::config {

// fineserved knows a MIG instance by the bytes of its UUID alone.
std::string FleetEngine::CudaGpu() const {
  return is_mig ? absl::StrCat("MIG-", absl::StripPrefix(gpu, "GPU-")) : gpu;
}

size_t Fleet::ModelIndex(const std::string& name) const {
  return std::find_if(models.begin(), models.end(),
                      [&](const FleetModel& m) { return m.name == name; }) -
         models.begin();
}

const FleetEngine* Fleet::Engine(absl::string_view name) const {
  const auto found =
      std::find_if(engines.begin(), engines.end(),
                   [&](const FleetEngine& e) { return e.name == name; });
  return found == engines.end() ? nullptr : &*found;
}

Fleet Fleet::OfGpu(const std::string& gpu) const {
  Fleet part = *this;
  part.engines.erase(
      std::remove_if(part.engines.begin(), part.engines.end(),
                     [&](const FleetEngine& e) { return e.gpu != gpu; }),
      part.engines.end());
  return part;
}

}  // namespace fineserve::config
