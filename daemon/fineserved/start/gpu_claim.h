#ifndef DAEMON_FINESERVED_START_GPU_CLAIM_H_
#define DAEMON_FINESERVED_START_GPU_CLAIM_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/fineserved/backing/find_device.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::server {

// Claims the GPU for this process, as long as the descriptor is open, against
// the daemons of all runtime folders and users: two pools on one GPU would
// starve each other. FailedPrecondition, naming pid and user, if another
// process has claimed it.
//
// The claim is a socket in the abstract namespace, named after the GPU's UUID
// (an emulated one's machine too), which the kernel frees with the process. So
// it holds only within a network namespace: a daemon in a container with a
// namespace of its own is not seen. Any user may also claim any name first.
absl::StatusOr<driver::Descriptor> ClaimGpu(const backing::Device& device);

// Returns the name for a device, without the leading NUL.
std::string ClaimName(const backing::Device& device);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_START_GPU_CLAIM_H_
