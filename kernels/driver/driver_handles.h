#ifndef KERNELS_DRIVER_DRIVER_HANDLES_H_
#define KERNELS_DRIVER_DRIVER_HANDLES_H_

// Owners of the driver's handles: one move-only type per kind. Each is confined
// to one thread at a time and releases its handle in its destructor; a release
// that the driver refuses is counted (release_failures), because nothing else
// can be done about it. Declare them in the order context, reservation,
// granule, mapping, because the mapping must be destroyed first.

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/driver.h"

namespace fineserve::driver {

// Returns the number of releases that the driver has refused in this process.
// Any thread.
uint64_t release_failures();

// A retained primary context, current in the creating thread.
class Context {
 public:
  // Retains `device`'s primary context and makes it current in this thread.
  static absl::StatusOr<Context> Retain(const Driver& driver, CUdevice device);
  Context(Context&& other) noexcept;
  Context& operator=(Context&&) = delete;
  ~Context();

  CUdevice device() const { return device_; }
  // Makes the context current in the calling thread as well. If that fails, the
  // next driver call there fails.
  void MakeCurrent() const;

 private:
  Context(const Driver& driver, CUdevice device, CUcontext context)
      : driver_(driver), device_(device), context_(context) {}

  Driver driver_;
  CUdevice device_;
  CUcontext context_;
  bool owns_ = true;
};

// Returns the free memory of the current context's device, in bytes.
absl::StatusOr<uint64_t> FreeBytes(const Driver& driver);

// One physical allocation of device memory: a granule.
class Granule {
 public:
  // Creates `bytes` (a multiple of AllocationGranularity) on `device`. It can
  // be exported as a POSIX descriptor and, where the device supports GPUDirect
  // RDMA, be used by network cards. ResourceExhausted if it does not fit.
  static absl::StatusOr<Granule> Create(const Driver& driver, CUdevice device,
                                        uint64_t bytes);
  // Imports another process's granule. The caller keeps ownership of
  // `descriptor`.
  static absl::StatusOr<Granule> Import(const Driver& driver, int descriptor,
                                        uint64_t bytes);
  Granule(Granule&& other) noexcept;
  Granule& operator=(Granule&&) = delete;
  ~Granule();

  // Returns a new descriptor that refers to this memory and keeps it alive.
  absl::StatusOr<Descriptor> Export() const;

  CUmemGenericAllocationHandle handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Granule(const Driver& driver, CUmemGenericAllocationHandle handle,
          uint64_t bytes)
      : driver_(driver), handle_(handle), bytes_(bytes) {}

  Driver driver_;
  CUmemGenericAllocationHandle handle_;  // 0: moved from
  uint64_t bytes_;
};

// A range of device addresses without memory.
class Reservation {
 public:
  static absl::StatusOr<Reservation> Create(const Driver& driver,
                                            uint64_t bytes);
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Reservation(const Driver& driver, CUdeviceptr address, uint64_t bytes)
      : driver_(driver), address_(address), bytes_(bytes) {}

  Driver driver_;
  CUdeviceptr address_;  // 0: moved from
  uint64_t bytes_;
};

// A granule mapped inside a reservation. Keeps the memory alive even without
// the granule's handle. It cannot be accessed before AllowReadWrite.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Create(const Driver& driver,
                                        CUdeviceptr address,
                                        const Granule& granule);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

 private:
  Mapping(const Driver& driver, CUdeviceptr address, uint64_t bytes)
      : driver_(driver), address_(address), bytes_(bytes) {}

  Driver driver_;
  CUdeviceptr address_;  // 0: moved from
  uint64_t bytes_;
};

// Lets `device` read and write [address, address + bytes), which may span any
// number of adjacent mappings. Takes one driver call.
absl::Status AllowReadWrite(const Driver& driver, CUdevice device,
                            CUdeviceptr address, uint64_t bytes);

// Returns the smallest granule on `device`, in bytes (2 MiB on every GPU so
// far).
absl::StatusOr<uint64_t> AllocationGranularity(const Driver& driver,
                                               CUdevice device);

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DRIVER_HANDLES_H_
