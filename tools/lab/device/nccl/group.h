#ifndef TOOLS_LAB_DEVICE_NCCL_GROUP_H_
#define TOOLS_LAB_DEVICE_NCCL_GROUP_H_

#include <memory>

#include "tools/lab/device/nccl/communicator.h"
#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {

// The calling thread's group: what was called since its first ncclGroupStart.
// Calls outside a group are a group of their own.

void StartGroup();
// Ends the innermost group. The last one launches everything, and returns the
// first error of the group's calls.
ncclResult_t EndGroup();
bool InGroup();

// Remembers an error of a call, for EndGroup, and returns it.
ncclResult_t Note(ncclResult_t result);
void AddTask(std::shared_ptr<Communicator> communicator, Task task,
             cudaStream_t stream);
// EndGroup waits until its ranks have joined.
void AddJoining(std::shared_ptr<Communicator> communicator);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_GROUP_H_
