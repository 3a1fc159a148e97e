#ifndef SHIM_REDIRECT_DECISION_RECORDS_H_
#define SHIM_REDIRECT_DECISION_RECORDS_H_

#include "daemon/contract/abi/engine_scoreboard.h"
#include "kernels/driver/cuda_types.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// A record with this thread, the time and the hook; the rest is zero.
abi::DecisionRecord NewRecord(abi::Hook hook);

// Records the outcome of a free: `verdict`, or kKept if the driver's `result`
// is an error.
void RecordFree(abi::Hook hook, const Redirection& range, abi::Verdict verdict,
                driver::CUresult result, ScoreboardWriter* scoreboard);

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_DECISION_RECORDS_H_
