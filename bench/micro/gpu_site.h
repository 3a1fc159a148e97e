#ifndef BENCH_MICRO_GPU_SITE_H_
#define BENCH_MICRO_GPU_SITE_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tests/process/child_process.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::bench {

// An emulated GPU and a real fineserved on it. Their folders are temporary, so
// that they never meet another daemon of the machine; the environment of this
// process names them, so only one site can exist at a time. Not thread-safe.
class GpuSite {
 public:
  GpuSite();
  GpuSite(const GpuSite&) = delete;
  GpuSite& operator=(const GpuSite&) = delete;

  // Starts fineserved and waits until all slabs are zeroed. One at a time.
  void StartDaemon(const std::vector<std::string>& flags);
  void StopDaemon() { daemon_.reset(); }
  pid_t daemon_pid() const { return daemon_->pid(); }

  // Returns the environment in which a program is the engine `name`.
  process::Environment UnderPreload(const std::string& name) const;
  std::string EmulatedFolder() const;

 private:
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::TemporaryFolder runtime_folder_;
  absl::optional<process::ChildProcess> daemon_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_GPU_SITE_H_
