#ifndef TOOLS_LAB_LOADGEN_REPORT_H_
#define TOOLS_LAB_LOADGEN_REPORT_H_

#include <string>

#include "tools/lab/loadgen/options.h"
#include "tools/lab/loadgen/run.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::loadgen {

// Prints a table for people: a row for each model, and one for all of them.
void Print(const RunResult& result, const workload::Trace& trace);

// Makes one object for machines. Infinite percentiles are null.
//
//   {"source", "seconds", "interrupted", "unfinished", "worst_late_s",
//    "cpu_share", "errors": {text: count}, "all": S, "models": {name: S}}
//   S: Summary's fields, and "attainment_by_length_decile"
std::string ToJson(const RunResult& result, const workload::Trace& trace,
                   const std::string& source);

// Plots the requests sent, done and on time, by the second in which they were
// sent.
std::string ToSvg(const RunResult& result);

}  // namespace fineserve::loadgen

#endif  // TOOLS_LAB_LOADGEN_REPORT_H_
