#ifndef DAEMON_FINESERVED_BACKING_NVML_H_
#define DAEMON_FINESERVED_BACKING_NVML_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::backing {

// The processes that the driver lists on a GPU.
struct DeviceProcesses {
  std::vector<pid_t> direct;       // by themselves, MPS servers among them
  std::vector<pid_t> mps_clients;  // of those servers
  std::vector<pid_t> mps_servers;

  // All of them in one list.
  std::vector<pid_t> All() const;
};

// The driver's list of processes on a GPU, from NVML. Only NVML still names a
// process that has exited while its device work or teardown goes on. Confined
// to one thread.
class Nvml {
 public:
  // Loads `library` and finds the GPU. NotFound if either does not exist;
  // FailedPrecondition if the GPU is a MIG instance.
  static absl::StatusOr<Nvml> Load(const std::string& library,
                                   const uint8_t (&gpu_uuid)[16]);

  // True if confidential computing is on, as far as this NVML knows.
  bool confidential() const;

  // Returns all processes with work on the GPU, clients of MPS among them. An
  // error if some may be missing: the list is full, or names an MPS server
  // whose clients this NVML cannot list.
  absl::StatusOr<DeviceProcesses> Processes() const;

  // Returns how many uncorrectable errors the GPU's memory has had since the
  // driver was loaded; 0 if NVML does not say.
  uint64_t MemoryErrors() const;

 private:
  struct Api;
  struct ProcessInfo;
  using List = int (*)(void* device, unsigned int* count, ProcessInfo*);
  static absl::StatusOr<void*> FindGpu(const Api& api,
                                       const uint8_t (&gpu_uuid)[16]);
  absl::StatusOr<std::vector<pid_t>> PidsOf(List list, const char* name) const;
  Nvml(std::shared_ptr<const Api> api, void* device)
      : api_(std::move(api)), device_(device) {}

  std::shared_ptr<const Api> api_;
  void* device_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_NVML_H_
