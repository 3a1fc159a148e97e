#ifndef TOOLS_LAB_DEVICE_NCCL_UNIQUE_ID_H_
#define TOOLS_LAB_DEVICE_NCCL_UNIQUE_ID_H_

#include <string>

#include "tools/lab/device/nccl/nccl_types.h"

namespace fineserve::nccl {

// Makes a fresh id: a mark of this library and 16 random bytes, as text.
ncclResult_t MakeUniqueId(ncclUniqueId* id);

// Returns the name of the communicator's file in the state folder, or an empty
// string if the id is not from MakeUniqueId.
std::string FileNameOf(const ncclUniqueId& id);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_UNIQUE_ID_H_
