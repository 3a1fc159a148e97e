#include "daemon/fineserved/admission/drained_engines.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/whole_file.h"

namespace fineserve::admission {

DrainedEngines::DrainedEngines(std::string path) : path_(std::move(path)) {
  struct stat file_info;
  absl::Time since = SteadyNow();
  if (stat(path_.c_str(), &file_info) == 0) {
    since -= absl::Now() - absl::TimeFromTimespec(file_info.st_mtim);
  }
  std::ifstream file(path_);
  for (std::string name; std::getline(file, name);) names_[name] = since;
}

absl::optional<absl::Time> DrainedEngines::Since(
    const std::string& engine) const {
  const auto own = names_.find(engine), gpu = names_.find(kGpu);
  if (own == names_.end() && gpu == names_.end()) return absl::nullopt;
  if (own == names_.end()) return gpu->second;
  if (gpu == names_.end()) return own->second;
  return std::min(own->second, gpu->second);
}

absl::Status DrainedEngines::Set(const std::vector<std::string>& engines,
                                 bool on) {
  Names names = names_;
  if (!on) names.erase(kGpu);
  for (const std::string& engine : engines) {
    if (on) {
      names.try_emplace(engine, SteadyNow());
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

absl::Status DrainedEngines::Keep(const Names& names) const {
  if (path_.empty()) return absl::OkStatus();
  std::string text;
  for (const auto& [name, since] : names) absl::StrAppend(&text, name, "\n");
  return base::ReplaceFile(path_, text);
}

}  // namespace fineserve::admission
