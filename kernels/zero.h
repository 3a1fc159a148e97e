#ifndef KERNELS_ZERO_H_
#define KERNELS_ZERO_H_

#include "kernels/byte_range.h"

namespace fineserve::kernels {

// Zeroes thread `thread`'s share, of `threads` threads, of a range: the
// kernel's host twin. Together the threads zero the whole range and write
// nothing else. They may run at the same time.
void ZeroShare(const ByteRange& range, uint64_t thread, uint64_t threads);

}  // namespace fineserve::kernels

#endif  // KERNELS_ZERO_H_
