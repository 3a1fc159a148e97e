#ifndef TOOLS_EMUCUDA_NCCL_COLLECTIVES_H_
#define TOOLS_EMUCUDA_NCCL_COLLECTIVES_H_

#include <string>

#include "tools/emucuda/nccl/communicator.h"
#include "tools/emucuda/nccl/task.h"

namespace fineserve::nccl {

// Runs this rank's part of a collective, on a stream's thread; returns when
// this rank has its result. Errors are Take's.
ncclResult_t RunCollective(Communicator& communicator, const Task& task,
                           std::string* what);

}  // namespace fineserve::nccl

#endif  // TOOLS_EMUCUDA_NCCL_COLLECTIVES_H_
