#ifndef TOOLS_LAB_LOADGEN_OPTIONS_H_
#define TOOLS_LAB_LOADGEN_OPTIONS_H_

#include <map>
#include <string>

#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"
#include "tools/openai/target.h"

namespace fineserve::loadgen {

struct Options {
  openai::Target target;
  bool chat = false;
  bool send_slo = false;  // send the SLOs in the header
  bool progress = true;
  double timeout_s = 600;  // of a request
  double limit_s = 0;      // to wait after the last request; 0: until all ended
  workload::Slo slo;       // of models that `slos` does not name
  std::map<std::string, workload::Slo> slos;
  std::string json_path, svg_path, source;  // source: the load's file
};

// Reads the command line and the files that it names, and sets *trace to the
// load. If it returns false, *status is the exit status: 0 after --help, 2 for
// wrong usage, after one line on standard error that explains it.
bool ReadOptions(int argc, char** argv, Options* options,
                 workload::Trace* trace, int* status);

}  // namespace fineserve::loadgen

#endif  // TOOLS_LAB_LOADGEN_OPTIONS_H_
