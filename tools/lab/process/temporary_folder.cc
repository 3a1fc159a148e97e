#include "tools/lab/process/temporary_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace fineserve::process {

TemporaryFolder::TemporaryFolder(const std::string& parent)
    : path_(parent + "/fineserve-XXXXXX") {
  if (mkdtemp(path_.data()) != nullptr) return;
  perror(path_.c_str());
  exit(1);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace fineserve::process
