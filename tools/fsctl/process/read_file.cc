#include "tools/fsctl/process/read_file.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"
#include "daemon/base/whole_file.h"

namespace fineserve::fsctl {

std::string ReadFile(const std::string& path) {
  return base::ReadWholeFile(path).value_or("");
}

std::string LastLine(int file, off_t begin) {
  char text[4096];
  const off_t end = lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(begin, end - off_t{sizeof(text)});
  const ssize_t n = pread(file, text, sizeof(text), from);
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(text, n > 0 ? static_cast<size_t>(n) : 0),
                     '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : lines.back();
}

}  // namespace fineserve::fsctl
