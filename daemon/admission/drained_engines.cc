#include "daemon/admission/drained_engines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

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

// A reader finds the old file or the new one, whole.
absl::Status DrainedEngines::Keep(const std::set<std::string>& names) const {
  if (path_.empty()) return absl::OkStatus();
  const std::string next = path_ + ".new";
  std::ofstream file(next, std::ios::trunc);
  for (const std::string& name : names) file << name << "\n";
  file.close();
  if (file && chmod(next.c_str(), 0600) == 0 &&
      rename(next.c_str(), path_.c_str()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path_, ": ", strerror(errno)));
}

}  // namespace fineserve::admission
