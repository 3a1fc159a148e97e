#ifndef DAEMON_FINDING_GPU_NAME_H_
#define DAEMON_FINDING_GPU_NAME_H_

#include "absl/strings/string_view.h"

namespace fineserve::finding {

// True if `name` means the GPU of this UUID: it is the UUID's beginning, with
// or without "GPU-" or "MIG-" in front, in any case. A daemon knows a MIG
// instance by the bytes of its UUID alone, so the two prefixes mean the same.
// The empty name means every GPU. The one rule for --gpu, for the fleet file
// and for the names of sockets.
bool MeansGpu(absl::string_view name, absl::string_view uuid);

// True if both names may mean one GPU: one of them is the other's beginning.
bool MayBeOneGpu(absl::string_view a, absl::string_view b);

}  // namespace fineserve::finding

#endif  // DAEMON_FINDING_GPU_NAME_H_
