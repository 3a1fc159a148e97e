#ifndef KERNELS_FINGERPRINT_KERNEL_H_
#define KERNELS_FINGERPRINT_KERNEL_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/byte_range.h"
#include "kernels/driver/driver.h"

namespace fineserve::kernels {

// The kernel that computes fingerprints (fingerprint.h), in one context.
// Move-only; confined to one thread at a time. The context that was current at
// Load must be current in every call, and must outlive this object.
class FingerprintKernel {
 public:
  // Loads the kernel. FailedPrecondition if the driver cannot load code;
  // NotFound if this build has no code for a real device because it was made
  // without nvcc.
  static absl::StatusOr<FingerprintKernel> Load(const driver::Driver& driver);
  FingerprintKernel(FingerprintKernel&& other) noexcept;
  FingerprintKernel& operator=(FingerprintKernel&&) = delete;
  ~FingerprintKernel();

  // Writes the digest of each range to `digests`, an address that is a multiple
  // of 8, with 16 bytes for each. Only submits the work: the driver reports an
  // error of the kernel later, at the latest when the stream is waited for.
  absl::Status Launch(absl::Span<const ByteRange> ranges,
                      driver::CUdeviceptr digests,
                      driver::CUstream stream) const;

 private:
  explicit FingerprintKernel(const driver::Driver& driver) : driver_(driver) {}

  driver::Driver driver_;
  driver::CUmodule module_ = nullptr;  // null: moved from
  driver::CUfunction kernel_ = nullptr;
};

}  // namespace fineserve::kernels

#endif  // KERNELS_FINGERPRINT_KERNEL_H_
