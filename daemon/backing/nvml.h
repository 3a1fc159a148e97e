#ifndef DAEMON_BACKING_NVML_H_
#define DAEMON_BACKING_NVML_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::backing {

// The driver's own list of processes on a GPU, by NVML. The one source that
// still names a process whose exit the kernel has reported but whose device
// work or teardown is not over. Confined to one thread.
class Nvml {
 public:
  // Loads `library` and finds the GPU. Errors: NotFound if there is no such
  // library or GPU.
  static absl::StatusOr<Nvml> Load(const std::string& library,
                                   const uint8_t (&gpu_uuid)[16]);

  absl::StatusOr<std::vector<pid_t>> ComputePids() const;

 private:
  struct Api;
  Nvml(std::shared_ptr<const Api> api, void* device)
      : api_(std::move(api)), device_(device) {}

  std::shared_ptr<const Api> api_;
  void* device_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_NVML_H_
