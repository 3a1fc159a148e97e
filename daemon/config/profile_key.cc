#include "daemon/config/profile_key.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::config {

Setter ProfileKey(const std::string& path, const std::string& key,
                  TakeProfile take) {
  return [=](const toml::node& node) {
    std::string written;
    if (absl::Status s = Text(&written)(node); !s.ok()) return s;
    const std::string found = ProfilePath(path, written);
    const absl::StatusOr<MeasuredProfile> file = ReadProfile(found);
    if (!file.ok()) {
      return At(path, node.source(),
                absl::StrCat(key, ": ", std::string(file.status().message())));
    }
    take(found, *file);
    return absl::OkStatus();
  };
}

}  // namespace fineserve::config
