#ifndef TOOLS_LAB_DEVICE_NCCL_DEVICE_LAUNCH_H_
#define TOOLS_LAB_DEVICE_NCCL_DEVICE_LAUNCH_H_

#include <memory>
#include <vector>

#include "tools/lab/device/nccl/communicator.h"
#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {

// Submits a group's tasks of one communicator as one kernel on its device, as
// NCCL does, and returns. `streams` are the streams that the tasks were called
// with: the kernel runs after the work that they hold, and their later work
// runs after the kernel. Collectives run first, in their order; then all
// transfers run together.
ncclResult_t Launch(const std::shared_ptr<Communicator>& communicator,
                    std::vector<Task> tasks,
                    const std::vector<cudaStream_t>& streams);

// Makes a device current for this thread; the destructor undoes this.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_DEVICE_LAUNCH_H_
