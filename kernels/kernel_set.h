#ifndef KERNELS_KERNEL_SET_H_
#define KERNELS_KERNEL_SET_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/byte_range.h"
#include "kernels/driver/driver.h"

namespace fineserve::kernels {

// Our kernels in one context. Move-only; confined to one thread at a time. The
// context that was current at Load must be current in every call, and must
// outlive this object. Calls on streams only submit work: the driver reports a
// kernel's error later, at the latest when the stream is waited for.
class KernelSet {
 public:
  // FailedPrecondition if the driver cannot load code; NotFound if this build
  // has no code for a real device because it was made without nvcc.
  static absl::StatusOr<KernelSet> Load(const driver::Driver& driver);
  KernelSet(KernelSet&& other) noexcept;
  KernelSet& operator=(KernelSet&&) = delete;
  ~KernelSet();

  // Zeroes every byte of the ranges.
  absl::Status Zero(absl::Span<const ByteRange> ranges,
                    driver::CUstream stream) const;

  // Writes the ranges' digest (fingerprint.h) to the 8 bytes at `digest`, a
  // multiple of 8. InvalidArgument, with nothing submitted, if there are more
  // ranges, or more bytes in one, than a digest can tell apart.
  absl::Status Fingerprint(absl::Span<const ByteRange> ranges,
                           driver::CUdeviceptr digest,
                           driver::CUstream stream) const;

 private:
  explicit KernelSet(const driver::Driver& driver) : driver_(driver) {}

  driver::Driver driver_;
  driver::CUmodule module_ = nullptr;  // null: moved from
  driver::CUfunction zero_ = nullptr;
  driver::CUfunction fingerprint_ = nullptr;
};

}  // namespace fineserve::kernels

#endif  // KERNELS_KERNEL_SET_H_
