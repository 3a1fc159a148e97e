#include "tools/lab/workload/trace.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::workload {
namespace {

// Reads a table row by row.
class Table {
 public:
  explicit Table(const std::string& path)
      : path_(path), file_(gzopen(path.c_str(), "rb"), gzclose) {}

  absl::Status Begin(const char* header) {
    if (file_ == nullptr) {
      return absl::NotFoundError(absl::StrCat(path_, " cannot be read"));
    }
    if (Next() && strcmp(line_, header) == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(path_, " does not begin with ", header));
  }

  // Reads the next line, without its newline. Returns false at the end.
  bool Next() {
    if (gzgets(file_.get(), line_, sizeof(line_)) == nullptr) return false;
    line_[strcspn(line_, "\r\n")] = '\0';
    ++row_;
    return true;
  }

  // Returns an error if the file ends in the middle of its compressed data.
  absl::Status End() const {
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (error == Z_OK || error == Z_STREAM_END) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path_, " is cut off"));
  }

  const char* line() const { return line_; }
  absl::Status Bad() const {
    return absl::DataLossError(
        absl::StrCat(path_, ":", row_, ": bad row ", line_));
  }

 private:
  const std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  char line_[256] = {};
  size_t row_ = 0;
};

Lengths AtLeastOne(unsigned input, unsigned output) {
  return {std::max(input, 1u), std::max(output, 1u)};
}

uint32_t ModelIn(Trace* trace, const char* name) {
  auto& models = trace->models;
  const auto found = std::find(models.begin(), models.end(), name);
  const auto index = static_cast<uint32_t>(found - models.begin());
  if (found == models.end()) models.emplace_back(name);
  return index;
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  Table table(path);
  if (const absl::Status s =
          table.Begin("timestamp_s,model,input_tokens,output_tokens");
      !s.ok()) {
    return s;
  }
  Trace trace;
  double last_s = 0;
  while (table.Next()) {
    double at_s = 0;
    char model[128];
    unsigned input = 0, output = 0;
    if (sscanf(table.line(), "%lf,%127[^,],%u,%u", &at_s, model, &input,
               &output) != 4 ||
        at_s < last_s) {
      return table.Bad();
    }
    last_s = at_s;
    trace.arrivals.push_back(
        {at_s, ModelIn(&trace, model), AtLeastOne(input, output)});
  }
  if (const absl::Status s = table.End(); !s.ok()) return s;
  return trace;
}

absl::StatusOr<std::vector<Lengths>> ReadLengths(const std::string& path) {
  Table table(path);
  if (const absl::Status s = table.Begin("input_tokens,output_tokens");
      !s.ok()) {
    return s;
  }
  std::vector<Lengths> all;
  while (table.Next()) {
    unsigned input = 0, output = 0;
    if (sscanf(table.line(), "%u,%u", &input, &output) != 2) {
      return table.Bad();
    }
    all.push_back(AtLeastOne(input, output));
  }
  if (const absl::Status s = table.End(); !s.ok()) return s;
  return all;
}

}  // namespace fineserve::workload
