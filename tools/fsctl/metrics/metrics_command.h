#ifndef TOOLS_FSCTL_METRICS_METRICS_COMMAND_H_
#define TOOLS_FSCTL_METRICS_METRICS_COMMAND_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct MetricsOptions {
  std::string part;  // of a name or a meaning; empty: all
};

// `fsctl metrics`: lists the metrics that fineserved and fineserve-proxy
// export. Returns the exit code: 1 if nothing matches.
int RunMetrics(const Globals& globals, const MetricsOptions& options);

// Output of the command.
std::string MetricsText(const MetricsOptions& options, bool color);
std::string MetricsJson(const MetricsOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_METRICS_METRICS_COMMAND_H_
