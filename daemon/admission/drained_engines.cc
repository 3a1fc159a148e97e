#include "daemon/admission/drained_engines.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/whole_file.h"

namespace fineserve::admission {

DrainedEngines::DrainedEngines(std::string path) : path_(std::move(path)) {
  std::ifstream file(path_);
  for (std::string name; std::getline(file, name);) names_.insert(name);
}

absl::Status DrainedEngines::Set(const std::vector<std::string>& engines,
                                 bool on) {
  std::set<std::string> names = names_;
  if (!on) names.erase(kGpu);
  for (const std::string& engine : engines) {
    if (on) {
      names.insert(engine);
    } else {
      names.erase(engine);
    }
  }
  if (const absl::Status s = Keep(names); !s.ok()) return s;
  names_ = std::move(names);
  return absl::OkStatus();
}

absl::Status DrainedEngines::Empty(std::vector<std::string> at_once) {
  at_once.push_back(kGpu);
  return Set(at_once, true);
}

absl::Status DrainedEngines::Keep(const std::set<std::string>& names) const {
  if (path_.empty()) return absl::OkStatus();
  std::string text;
  for (const std::string& name : names) absl::StrAppend(&text, name, "\n");
  return base::ReplaceFile(path_, text);
}

}  // namespace fineserve::admission
