#ifndef KERNELS_DRIVER_DRIVER_H_
#define KERNELS_DRIVER_DRIVER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/driver/entry_points.h"

namespace fineserve::driver {

// A loaded CUDA driver, real or emulated. It is loaded by dlopen, never linked,
// so that our binaries start on a machine without one, and it stays loaded
// until the process ends, because a driver does not survive unloading.
// Copyable, thread-safe.
class Driver {
 public:
  // Loads `library` ("libcuda.so.1" or a path), resolves every entry point and
  // calls cuInit. Errors: NotFound if the library cannot be loaded,
  // FailedPrecondition if it is too old (naming the entry point that it lacks),
  // otherwise the error of cuInit.
  static absl::StatusOr<Driver> Load(const std::string& library);

  const EntryPoints& call() const { return *entry_points_; }
  // 1000 × major + 10 × minor, e.g. 13000.
  int version() const { return version_; }

 private:
  Driver(std::shared_ptr<const EntryPoints> entry_points, int version)
      : entry_points_(std::move(entry_points)), version_(version) {}

  std::shared_ptr<const EntryPoints> entry_points_;
  int version_;
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DRIVER_H_
