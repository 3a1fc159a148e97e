#include "shim/redirect/decision_records.h"

#include <time.h>
#include <unistd.h>

namespace fineserve::shim {

using driver::CUDA_SUCCESS;

abi::DecisionRecord NewRecord(abi::Hook hook) {
  abi::DecisionRecord r = {};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  r.time_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  r.hook = hook;
  r.tid = static_cast<uint32_t>(gettid());
  return r;
}

void RecordFree(abi::Hook hook, const Redirection& range, abi::Verdict verdict,
                driver::CUresult result, ScoreboardWriter* scoreboard) {
  abi::DecisionRecord record = NewRecord(hook);
  record.address = range.base;
  record.bytes = range.asked_bytes;
  record.lease = range.lease;
  record.result = result;
  record.verdict = result == CUDA_SUCCESS ? verdict : abi::Verdict::kKept;
  record.reason =
      result == CUDA_SUCCESS ? abi::Reason::kFreed : abi::Reason::kDriverError;
  scoreboard->Record(record);
}

}  // namespace fineserve::shim
