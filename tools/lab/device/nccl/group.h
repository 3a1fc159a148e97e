#ifndef TOOLS_LAB_DEVICE_NCCL_GROUP_H_
#define TOOLS_LAB_DEVICE_NCCL_GROUP_H_

#include <memory>

#include "tools/lab/device/nccl/communicator.h"
#include "tools/lab/device/nccl/task.h"

namespace fineserve::nccl {

// The calling thread's group: the calls since its first ncclGroupStart. A call
// outside a group forms a group by itself.

void StartGroup();
// Ends the innermost group. Ending the outermost one launches everything, and
// returns the first error of the group's calls.
ncclResult_t EndGroup();
bool InGroup();

// Remembers the error of a call for EndGroup, and returns it.
ncclResult_t Note(ncclResult_t result);
void AddTask(std::shared_ptr<Communicator> communicator, Task task,
             cudaStream_t stream);
// Makes EndGroup wait until the communicator's ranks have joined.
void AddJoining(std::shared_ptr<Communicator> communicator);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_GROUP_H_
