// The kernel's host twin, compiled from the kernel's own source.

#include "kernels/fingerprint.h"

#include "kernels/fingerprint.cu"

namespace fineserve::kernels {

uint64_t FingerprintOnHost(const ByteRange* ranges, size_t count) {
  uint64_t digest = 0;
  for (size_t r = 0; r < count; ++r) {
    digest += LengthTerm(r, ranges[r].bytes) +
              LaneShare(ranges[r], FirstPosition(r), 0, 1);
  }
  return digest;
}

}  // namespace fineserve::kernels
