#include "bench/fragmentation/lengths.h"

#include <stdio.h>
#include <zlib.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::bench {

absl::StatusOr<std::vector<uint32_t>> ReadLengths(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(
      gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  }
  std::vector<uint32_t> lengths;
  char line[256];
  if (gzgets(file.get(), line, sizeof(line)) == nullptr ||
      std::string(line) != "input_tokens,output_tokens\n") {
    return absl::DataLossError(
        absl::StrCat(path, " does not begin with input_tokens,output_tokens"));
  }
  while (gzgets(file.get(), line, sizeof(line)) != nullptr) {
    uint32_t input = 0, output = 0;
    if (sscanf(line, "%u,%u", &input, &output) != 2 || input + output == 0) {
      return absl::DataLossError(absl::StrCat(path, ": bad row ", line));
    }
    lengths.push_back(input + output);
  }
  return lengths;
}

}  // namespace fineserve::bench
