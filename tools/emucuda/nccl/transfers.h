#ifndef TOOLS_EMUCUDA_NCCL_TRANSFERS_H_
#define TOOLS_EMUCUDA_NCCL_TRANSFERS_H_

#include <string>
#include <vector>

#include "tools/emucuda/nccl/communicator.h"
#include "tools/emucuda/nccl/task.h"

namespace fineserve::nccl {

// Runs sends and receives of one group, which progress together; between two
// ranks they match in the order of the calls. A send ends when it has been
// received: nothing may rely on a buffer in between. Errors are Take's.
ncclResult_t RunTransfers(Communicator& communicator,
                          const std::vector<Task>& tasks, std::string* what);

}  // namespace fineserve::nccl

#endif  // TOOLS_EMUCUDA_NCCL_TRANSFERS_H_
