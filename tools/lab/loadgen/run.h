#ifndef TOOLS_LAB_LOADGEN_RUN_H_
#define TOOLS_LAB_LOADGEN_RUN_H_

#include <map>
#include <string>
#include <vector>

#include "tools/lab/loadgen/options.h"
#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::loadgen {

struct RunResult {
  std::vector<workload::Outcome>
      outcomes;                          // of the requests sent, in trace order
  std::map<std::string, size_t> errors;  // how often each occurred
  double seconds = 0;        // from the trace's start to the last end
  double worst_late_s = 0;   // how late the sender itself was
  double cpu_share = 0;      // how much of one core the sender used
  bool interrupted = false;  // by SIGINT: the rest was not sent
  size_t unfinished = 0;     // at --limit; counted as failed
  size_t answered = 0;       // with any HTTP status
};

// Sends the trace and waits for the answers. Blocks the calling thread.
RunResult Run(const Options& options, const workload::Trace& trace);

}  // namespace fineserve::loadgen

#endif  // TOOLS_LAB_LOADGEN_RUN_H_
