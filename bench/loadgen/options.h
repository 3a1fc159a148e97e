#ifndef BENCH_LOADGEN_OPTIONS_H_
#define BENCH_LOADGEN_OPTIONS_H_

#include <map>
#include <string>

#include "bench/loadgen/target.h"
#include "bench/workload/metrics.h"
#include "bench/workload/trace.h"

namespace fineserve::loadgen {

struct Options {
  Target target;
  bool chat = false;
  bool send_slo = false;  // tell the proxy the SLOs by header
  bool progress = true;
  double timeout_s = 600;  // of a request
  double limit_s = 0;      // of what is waited for after the last; 0: all
  workload::Slo slo;       // of models that `slos` does not name
  std::map<std::string, workload::Slo> slos;
  std::string json_path, svg_path, source;  // source: where the load is from
};

// Reads the command line and the files that it names: what to send is in
// *trace. On false *status is the exit status: 0 after --help, 2 for usage
// (told on standard error in one line).
bool ReadOptions(int argc, char** argv, Options* options,
                 workload::Trace* trace, int* status);

}  // namespace fineserve::loadgen

#endif  // BENCH_LOADGEN_OPTIONS_H_
