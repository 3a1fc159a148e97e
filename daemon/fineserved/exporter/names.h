#ifndef DAEMON_FINESERVED_EXPORTER_NAMES_H_
#define DAEMON_FINESERVED_EXPORTER_NAMES_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "daemon/contract/abi/printable.h"

namespace fineserve::exporter {

// Limits on names. Any user who can start an engine can choose its name, so
// names are cut off at kMostNameBytes, and all engines (or models) after the
// first kMostNames count as one, named "other".
inline constexpr size_t kMostNames = 256;
inline constexpr size_t kMostNameBytes = 64;
inline constexpr char kOther[] = "other";

// Returns a name as a label. Prometheus would refuse the whole page if a peer's
// name contained bytes that are not printable ASCII.
inline std::string LabelOf(const std::string& name) {
  return abi::Printable(name.c_str(), std::min(name.size(), kMostNameBytes));
}

// Sums by label. Labels after the first kMostNames count as kOther.
template <typename Sum>
class ByName {
 public:
  // Returns the entry of this name, or the shared entry if there are too many
  // names.
  Sum& Of(const std::string& name) {
    const std::string label = LabelOf(name);
    const auto found = sums_.find(label);
    if (found != sums_.end()) return found->second;
    return sums_[sums_.size() < kMostNames ? label : kOther];
  }
  // Null if there is no such entry.
  const Sum* Find(const std::string& label) const {
    const auto found = sums_.find(label);
    return found == sums_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Sum>& all() const { return sums_; }

 private:
  std::map<std::string, Sum> sums_;
};

}  // namespace fineserve::exporter

#endif  // DAEMON_FINESERVED_EXPORTER_NAMES_H_
