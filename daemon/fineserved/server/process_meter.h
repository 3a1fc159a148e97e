#ifndef DAEMON_FINESERVED_SERVER_PROCESS_METER_H_
#define DAEMON_FINESERVED_SERVER_PROCESS_METER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace fineserve::server {

// Returns a process's anonymous memory that resides in the host's memory, in
// bytes; 0 if there is no such process. Shared memory is left out: several
// processes of an engine may map the same shared memory, and the emulated
// device's memory is shared memory.
uint64_t AnonymousBytes(pid_t pid);

// Measures how much of the host's memory engines' processes take. A look at
// /proc takes some 10 µs per process, so at most one engine is measured in
// kPauseNs, and it is measured again only once all others could have been.
// Confined to a thread.
class ProcessMeter {
 public:
  static constexpr uint64_t kPauseNs = 500'000'000;

  // Returns the bytes of the engine's processes as of the last look at them; 0
  // before the first look. `now_ns` never goes back.
  uint64_t BytesOf(const std::string& engine,
                   absl::FunctionRef<std::vector<pid_t>()> processes,
                   uint64_t now_ns);
  // Forgets an engine that has no process.
  void Forget(const std::string& engine) { engines_.erase(engine); }

 private:
  struct Measured {
    uint64_t bytes = 0;
    uint64_t due_ns = 0;
  };

  std::map<std::string, Measured> engines_;
  uint64_t next_ns_ = 0;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_PROCESS_METER_H_
