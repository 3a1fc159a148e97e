#ifndef KERNELS_ZERO_H_
#define KERNELS_ZERO_H_

#include "kernels/byte_range.h"

namespace fineserve::kernels {

// Zeroes the share of thread `thread` of `threads` in a range; all shares make
// the whole, and nothing else is written. The kernel's twin on the host. Shares
// may run at once.
void ZeroShare(const ByteRange& range, uint64_t thread, uint64_t threads);

}  // namespace fineserve::kernels

#endif  // KERNELS_ZERO_H_
