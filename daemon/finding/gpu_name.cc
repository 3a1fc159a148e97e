#include "daemon/finding/gpu_name.h"

#include "absl/strings/match.h"

namespace fineserve::finding {
namespace {

// Returns the UUID's digits, without the kind before them.
absl::string_view Digits(absl::string_view name) {
  const bool has_kind = absl::StartsWithIgnoreCase(name, "GPU-") ||
                        absl::StartsWithIgnoreCase(name, "MIG-");
  return has_kind ? name.substr(4) : name;
}

}  // namespace

bool MeansGpu(absl::string_view name, absl::string_view uuid) {
  return absl::StartsWithIgnoreCase(uuid, name) ||
         absl::StartsWithIgnoreCase(Digits(uuid), Digits(name));
}

bool MayBeOneGpu(absl::string_view a, absl::string_view b) {
  return MeansGpu(a, b) || MeansGpu(b, a);
}

}  // namespace fineserve::finding
