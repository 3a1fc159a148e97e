#ifndef BENCH_MICRO_GPU_SITE_H_
#define BENCH_MICRO_GPU_SITE_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tests/process/child_process.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::bench {

// An emulated GPU and a real fineserved on it, in folders of their own that the
// environment of this process names: so one at a time, and no daemon of the
// machine is met. Not thread-safe.
class GpuSite {
 public:
  GpuSite();
  GpuSite(const GpuSite&) = delete;
  GpuSite& operator=(const GpuSite&) = delete;

  // Starts fineserved and waits until all slabs are zeroed. One at a time.
  void StartDaemon(const std::vector<std::string>& flags);
  void StopDaemon() { daemon_.reset(); }
  pid_t daemon_pid() const { return daemon_->pid(); }

  // Environment of a program that is to be the engine `name`.
  process::Environment UnderPreload(const std::string& name) const;
  std::string EmulatedFolder() const;

 private:
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::TemporaryFolder runtime_folder_;
  absl::optional<process::ChildProcess> daemon_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_GPU_SITE_H_
