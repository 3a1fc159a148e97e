#ifndef TOOLS_LAB_SIM_BOUND_CLAIRVOYANT_H_
#define TOOLS_LAB_SIM_BOUND_CLAIRVOYANT_H_

#include <cstdint>
#include <vector>

#include "tools/lab/sim/core/agenda.h"

namespace fineserve::sim {

// A first token that must come in time.
struct Job {
  Micros arrival = 0;
  Micros deadline = 0;
  double work_us = 0;  // the least that it takes of a machine; > 0
};

// Returns an upper bound on the number of jobs that any schedule could finish
// between their arrival and their deadline on machines that together do `speed`
// µs of work a µs, even if the whole future were known.
//
// The proof: for any schedule, let y_i be the work that it does for job i
// within its window, and Y(s, t) the sum over the jobs whose windows are within
// [s, t]. Then
//
//   0 ≤ y_i ≤ work_i  and  Y(s, t) ≤ speed · (t − s)  for all s < t         (*)
//
// and a job on time has y_i = work_i. So the most Σ y_i / work_i under (*) is
// at least the number of jobs on time. (*) describes a polymatroid (the flows
// from jobs to the time in their windows), over which a linear function is
// greatest by greed: jobs in order of weight, here the shortest first, each
// given as much as (*) leaves. Jobs are paid for parts, may be preempted, may
// run on several machines at once, and need no KV.
//
// With jobs in order of arrival whose deadlines are in the same order, Y(s, t)
// is a difference of prefix sums, so what is left for job i is
//
//   min_{v ≥ i} (speed · d_v − Y_v) − max_{u ≤ i} (speed · a_u − Y_{u−1})
//
// which two trees answer: O(n log n). If deadlines are not in order, some are
// put off until they are: wider windows, a weaker bound.
double MostOnTime(std::vector<Job> jobs, double speed);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_BOUND_CLAIRVOYANT_H_
