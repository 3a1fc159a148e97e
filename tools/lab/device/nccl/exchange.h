#ifndef TOOLS_LAB_DEVICE_NCCL_EXCHANGE_H_
#define TOOLS_LAB_DEVICE_NCCL_EXCHANGE_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/lab/device/nccl/communicator.h"
#include "tools/lab/device/nccl/shared_region.h"

namespace fineserve::nccl {

// One rank's part in a step that all ranks of a communicator take together.
struct Step {
  Signature signature;
  // Fills this rank's buffer, which has LaneBufferBytes(lane) bytes.
  std::function<void(char* own)> write;
  // Reads the buffers of all ranks, in the order of the ranks.
  std::function<void(const std::vector<const char*>& parts)> read;
};

// Takes the next step of a lane; reads nothing before all ranks have arrived.
// Returns ncclRemoteError if a rank is gone, ncclInvalidUsage if ranks disagree
// and ncclInternalError if the communicator has been released; `what` then has
// the details.
ncclResult_t Take(Communicator& communicator, Lane lane, const Step& step,
                  std::string* what);

// Returns a text for messages, such as "AllReduce(10 of type 7, op 0, root 0)".
std::string Describe(const Signature& signature);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_EXCHANGE_H_
