#ifndef TOOLS_LAB_DEVICE_NCCL_COLLECTIVES_H_
#define TOOLS_LAB_DEVICE_NCCL_COLLECTIVES_H_

#include <string>
#include <vector>

#include "tools/lab/device/nccl/communicator.h"
#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {

// Runs this rank's part of a collective, on a stream's thread; returns when
// this rank has its result. Returns the same errors as Take.
ncclResult_t RunCollective(Communicator& communicator, const Task& task,
                           std::string* what);

// Runs the sends and receives of one group, which progress together; between
// two ranks they match in the order of the calls. A send ends only when it has
// been received, so no program can rely on a buffer in between. Returns the
// same errors as Take.
ncclResult_t RunTransfers(Communicator& communicator,
                          const std::vector<Task>& tasks, std::string* what);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_COLLECTIVES_H_
