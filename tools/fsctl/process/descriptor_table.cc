#include "tools/fsctl/process/descriptor_table.h"

#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::fsctl {

std::string FullDescriptorTable(pid_t pid) {
  rlimit limit;
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) != 0) return "";
  std::error_code error;
  const std::filesystem::directory_iterator open(
      absl::StrCat("/proc/", pid, "/fd"), error);
  if (error) return "";
  const auto count = std::distance(begin(open), end(open));
  const auto used = static_cast<rlim_t>(count) + driver::kReservedDescriptors;
  if (used < limit.rlim_cur) return "";
  return absl::StrCat("its descriptor table is full (", count, " of ",
                      limit.rlim_cur,
                      "); raise its limit (LimitNOFILE) and restart it");
}

}  // namespace fineserve::fsctl
