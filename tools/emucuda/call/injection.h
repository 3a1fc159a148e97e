#ifndef TOOLS_EMUCUDA_CALL_INJECTION_H_
#define TOOLS_EMUCUDA_CALL_INJECTION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/emucuda/call/entry.h"
#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"

namespace fineserve::emucuda {

// Faults and latencies to order; syntax in emucuda.h. Thread-safe; costs two
// relaxed loads a call while nothing is set.
class Injection {
 public:
  // Replace all rules and start counting anew. False, and nothing changed, if
  // the text is malformed.
  bool SetFailures(std::string_view rules);
  bool SetLatencies(std::string_view rules);

  // Counts one call; the error that it must return, or CUDA_SUCCESS.
  CUresult NextFailure(Entry entry);
  // Takes as long as ordered; no lock is held.
  void Delay(Entry entry) const;

 private:
  struct Rule {
    Entry entry = {};
    uint64_t call = 0;  // 1 = the next one; 0 = every
    CUresult error = CUDA_SUCCESS;
    uint64_t seen = 0;
  };

  static bool ParseFailure(std::string_view text, std::vector<Rule>* rules);

  // Relaxed, both: settings that order nothing.
  std::atomic<bool> armed_{false};
  std::array<std::atomic<uint32_t>, kEntries> latency_us_ = {};

  Mutex mutex_;
  std::vector<Rule> rules_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_CALL_INJECTION_H_
