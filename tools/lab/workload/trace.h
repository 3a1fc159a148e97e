#ifndef TOOLS_LAB_WORKLOAD_TRACE_H_
#define TOOLS_LAB_WORKLOAD_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::workload {

// Tokens of one request.
struct Lengths {
  uint32_t input = 0;
  uint32_t output = 0;
};

struct Arrival {
  double at_s = 0;     // from the trace's start
  uint32_t model = 0;  // place in Trace::models
  Lengths lengths;
};

// The requests to all models, in order of time.
struct Trace {
  std::vector<std::string> models;
  std::vector<Arrival> arrivals;

  double seconds() const { return arrivals.empty() ? 0 : arrivals.back().at_s; }
};

// Reads a gzipped (or plain) table with the columns
// timestamp_s,model,input_tokens,output_tokens; models are in order of
// appearance. Requests without input or output, which real traces contain, get
// one token of it. Returns NotFound, with the path, if the file cannot be read,
// and DataLoss for a bad row.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

// Does the same for a table with the columns input_tokens,output_tokens.
absl::StatusOr<std::vector<Lengths>> ReadLengths(const std::string& path);

}  // namespace fineserve::workload

#endif  // TOOLS_LAB_WORKLOAD_TRACE_H_
