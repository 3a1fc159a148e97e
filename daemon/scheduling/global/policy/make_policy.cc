#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/scheduling/global/policy/dedicated_policy.h"
#include "daemon/scheduling/global/policy/fineserve_opt_policy.h"
#include "daemon/scheduling/global/policy/fineserve_policy.h"
#include "daemon/scheduling/global/policy/policy.h"
#include "daemon/scheduling/global/policy/prism_opt_policy.h"
#include "daemon/scheduling/global/policy/prism_policy.h"

namespace fineserve::plan {
namespace {

using Made = std::unique_ptr<Policy>;
struct Entry {
  const char* name;
  Made (*make)(const PolicyOptions& options);
};

template <typename T>
Made Plain(const PolicyOptions&) {
  return std::make_unique<T>();
}

template <FineServePolicy::Scoring scoring>
Made FineServe(const PolicyOptions& o) {
  return std::make_unique<FineServePolicy>(scoring, o.efficiency);
}

template <PrismPolicy::Form form>
Made Prism(const PolicyOptions& o) {
  return std::make_unique<PrismPolicy>(form, o.pressure, o.stay_share);
}

Made PrismOpt(const PolicyOptions& o) {
  return std::make_unique<PrismOptPolicy>(o.pressure);
}

Made FineServeOpt(const PolicyOptions& o) {
  return std::make_unique<FineServeOptPolicy>(o.search);
}

constexpr Entry kEntries[] = {
    {"fineserve", FineServe<FineServePolicy::Scoring::kMean>},
    {"prism", Prism<PrismPolicy::Form::kPrinted>},
    {"dedicated", Plain<DedicatedPolicy>},
    {"prism-mended", Prism<PrismPolicy::Form::kMended>},
    {"prism-opt", PrismOpt},
    {"fineserve-exact", FineServe<FineServePolicy::Scoring::kExact>},
    {"fineserve-opt", FineServeOpt},
};

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& e : kEntries) names.emplace_back(e.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(
    const std::string& name, const PolicyOptions& options) {
  for (const Entry& e : kEntries) {
    if (name == e.name) return e.make(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no placement policy \"", name, "\"; there are ",
                   absl::StrJoin(PolicyNames(), ", ")));
}

}  // namespace fineserve::plan
