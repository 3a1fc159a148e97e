#ifndef KERNELS_KERNEL_SET_H_
#define KERNELS_KERNEL_SET_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/byte_range.h"
#include "kernels/driver/driver.h"

namespace fineserve::kernels {

// Our kernels in one context. Move-only; confined to one thread at a time; the
// context that was current at Load must be current in every call, and outlive
// it. Calls on streams only submit: errors of a kernel come as the driver tells
// of them, at the latest when the stream is waited for.
class KernelSet {
 public:
  // FailedPrecondition if the driver cannot load code; NotFound if this build
  // has none for a real device (no nvcc).
  static absl::StatusOr<KernelSet> Load(const driver::Driver& driver);
  KernelSet(KernelSet&& other) noexcept;
  KernelSet& operator=(KernelSet&&) = delete;
  ~KernelSet();

  // Zeroes every byte of the ranges.
  absl::Status Zero(absl::Span<const ByteRange> ranges,
                    driver::CUstream stream) const;

  // Writes the ranges' digest (fingerprint.h) to the 8 bytes at `digest`, a
  // multiple of 8. InvalidArgument, and nothing is submitted, if there are more
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
