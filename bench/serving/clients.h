#ifndef BENCH_SERVING_CLIENTS_H_
#define BENCH_SERVING_CLIENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/lab/workload/metrics.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::bench {

// Clients of a service that listens on a port of this host. Runs loadgen's code
// in this process.

struct Sending {
  workload::Slo slo;       // stated in the requests' header
  double timeout_s = 120;  // of a request
  bool progress = false;   // a line on standard error, if that is a terminal
};

struct RunOutcome {
  std::vector<workload::Outcome> outcomes;
  double seconds = 0;
  double cpu = 0;            // how busy the host was: of all cores, 0 … 1
  bool interrupted = false;  // by SIGINT: the rest was not sent
};

// Sends the trace and waits for the answers.
RunOutcome Send(uint16_t port, const workload::Trace& trace,
                const Sending& sending);

// Asks every model for a token repeatedly until all answer. False if they do
// not within a minute, or SIGINT came.
bool AwaitAnswers(uint16_t port, const std::vector<std::string>& models);

// CPU time of the host since its start, in jiffies of all cores.
struct HostCpu {
  double busy = 0, all = 0;
  static HostCpu Now();
};

// Returns the part of all cores that was busy between two moments, 0 … 1.
double BusyPart(const HostCpu& before, const HostCpu& after);

}  // namespace fineserve::bench

#endif  // BENCH_SERVING_CLIENTS_H_
