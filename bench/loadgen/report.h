#ifndef BENCH_LOADGEN_REPORT_H_
#define BENCH_LOADGEN_REPORT_H_

#include <string>

#include "bench/loadgen/options.h"
#include "bench/loadgen/run.h"
#include "bench/workload/trace.h"

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

#endif  // BENCH_LOADGEN_REPORT_H_
