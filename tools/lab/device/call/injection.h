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

// Failures and latencies to inject; emucuda.h describes the syntax.
// Thread-safe. While nothing is set it costs two relaxed loads per call.
class Injection {
 public:
  // Replace all rules and restart the counting. Return false, and change
  // nothing, if the text is malformed.
  bool SetFailures(std::string_view rules);
  bool SetLatencies(std::string_view rules);

  // Counts one call. Returns the error that the call must return, or
  // CUDA_SUCCESS.
  CUresult NextFailure(Entry entry);
  // Waits for the injected latency, with the driver's lock: a slow call of one
  // thread holds up those of all others. If processes share the lock, calls
  // that change memory wait for it without a latency, too.
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
