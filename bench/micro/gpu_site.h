#ifndef BENCH_MICRO_GPU_SITE_H_
#define BENCH_MICRO_GPU_SITE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {

// An emulated GPU, or several, and a real fineserved on each. Their folders are
// temporary, so that they never meet another daemon of the machine; the
// environment of this process names them, so only one site can exist at a time.
// Not thread-safe.
class GpuSite {
 public:
  GpuSite();
  GpuSite(const GpuSite&) = delete;
  GpuSite& operator=(const GpuSite&) = delete;

  // Starts fineserved and waits until all slabs are zeroed. One at a time.
  void StartDaemon(const std::vector<std::string>& flags);
  void StopDaemon() { daemon_.reset(); }
  // Starts another one beside it, on another GPU ("--gpu emulated:1" and
  // EMUCUDA_DEVICES), and waits in the same way.
  void AddDaemon(const std::vector<std::string>& flags);
  pid_t daemon_pid() const { return daemon_->pid(); }

  // Returns the environment in which a program is the engine `name`.
  process::Environment UnderPreload(const std::string& name) const;
  std::string EmulatedFolder() const;

 private:
  process::Command Fineserved(const std::vector<std::string>& flags) const;
  void AwaitDaemons(size_t count) const;

  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::TemporaryFolder runtime_folder_;
  absl::optional<process::ChildProcess> daemon_;
  std::vector<process::ChildProcess> more_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_GPU_SITE_H_
