#ifndef TOOLS_LAB_WORKLOAD_LOAD_FLAGS_H_
#define TOOLS_LAB_WORKLOAD_LOAD_FLAGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lab/workload/trace.h"

namespace CLI {
class App;
}

namespace fineserve::workload {

// The flags that describe a load, the same in every program that has one: they
// mean the same requests at the same times, whether sent to real processes or
// simulated.
struct LoadFlags {
  std::string trace_path, lengths_path;
  std::vector<std::string> models, maps;
  double seconds = 60, scale = 1, speed = 1;
  uint64_t seed = 1;
  uint32_t most_input = 0, most_output = 0;

  // Returns the file that the load comes from.
  std::string source() const { return trace_path + lengths_path; }
};

void AddLoadFlags(CLI::App* app, LoadFlags* flags);

// Reads the file and makes the load. Returns InvalidArgument for wrong flags,
// and ReadTrace's errors.
absl::StatusOr<Trace> MakeLoad(const LoadFlags& flags);

// Splits "name=value" at the last '='. Returns InvalidArgument for any other
// text.
absl::StatusOr<std::pair<std::string, std::string>> SplitPair(
    const std::string& text);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_LOAD_FLAGS_H_
