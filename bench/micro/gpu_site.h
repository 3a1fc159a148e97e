#ifndef BENCH_MICRO_GPU_SITE_H_
#define BENCH_MICRO_GPU_SITE_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "bench/micro/process.h"

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
  const Process& daemon() const { return *daemon_; }

  // Environment of a program that is to be the engine `name`.
  std::vector<std::string> UnderPreload(const std::string& name) const;
  std::string EmulatedFolder() const;

 private:
  const Folder device_folder_;
  const Folder runtime_folder_;
  absl::optional<Process> daemon_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_GPU_SITE_H_
