#ifndef TOOLS_LAB_DEVICE_CALL_INJECTION_H_
#define TOOLS_LAB_DEVICE_CALL_INJECTION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/lab/device/call/entry.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_lock.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// The failures and latencies to inject; emucuda.h describes the syntax. Costs
// two relaxed loads per call while nothing is set. Thread-safe.
class Injection {
 public:
  // Replace all rules and restart the counting. Return false, and change
  // nothing, if the text is malformed.
  bool SetFailures(std::string_view rules);
  bool SetLatencies(std::string_view rules);

  // Counts one call. Returns the error that the call must return, or
  // CUDA_SUCCESS.
  CUresult NextFailure(Entry entry);
  // Waits for the injected latency while holding the driver's lock: a slow call
  // of one thread delays all other threads. If processes share the lock, calls
  // that change memory take it even if they have no latency.
  void Delay(Entry entry);
  DriverLock& driver_lock() { return driver_lock_; }

 private:
  struct Rule {
    Entry entry = {};
    uint64_t call = 0;  // 1 = the next one; 0 = every
    CUresult error = CUDA_SUCCESS;
    uint64_t seen = 0;
  };

  static bool ParseFailure(std::string_view text, std::vector<Rule>* rules);

  // Both relaxed: they are settings and order nothing.
  std::atomic<bool> armed_{false};
  std::array<std::atomic<uint32_t>, kEntries> latency_us_ = {};

  DriverLock driver_lock_;  // held while a call takes its injected time
  Mutex mutex_;
  std::vector<Rule> rules_ EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_CALL_INJECTION_H_
