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
  // Fills this rank's buffer, of LaneBufferBytes(lane).
  std::function<void(char* own)> write;
  // Reads the buffers of all ranks, in their order.
  std::function<void(const std::vector<const char*>& parts)> read;
};

// Takes the next step of a lane; nothing is read before all ranks have arrived.
// Returns ncclRemoteError if a rank is gone, ncclInvalidUsage if ranks disagree
// and ncclInternalError if the communicator has been released; `what` then says
// more.
ncclResult_t Take(Communicator& communicator, Lane lane, const Step& step,
                  std::string* what);

// "AllReduce(10 float32, op 0, root 0)", for messages.
std::string Describe(const Signature& signature);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_EXCHANGE_H_
