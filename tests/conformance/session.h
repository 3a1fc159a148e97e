#ifndef TESTS_CONFORMANCE_SESSION_H_
#define TESTS_CONFORMANCE_SESSION_H_

#include <cstdint>
#include <string>

#include "kernels/driver/entry_points.h"
#include "tests/conformance/isolation.h"

namespace fineserve::conformance {

using namespace fineserve::driver;  // NOLINT: the tests use CUDA's names

// Returns the shared library under test: $FINESERVE_LIBCUDA ("libcuda.so.1" is
// what any program would get), or else the emulated one.
void* DriverLibrary();
bool OnEmulatedDevice();

// False for a real device, unless $FINESERVE_TEST_OPEN requests these tests.
bool TestsWhatIsOpen();

// Marks a test of behaviour that CUDA leaves open. FineServe does not rely on
// that behaviour, but the emulated device must behave as it documents.
#define EMULATED_ONLY(what)                         \
  if (!::fineserve::conformance::TestsWhatIsOpen()) \
  GTEST_SKIP() << "CUDA leaves open " what

// Returns the path of a library of the emulated device.
std::string EmulatedLibrary(const char* name);

// Returns the driver's functions, resolved by dlsym; the driver is not
// initialised. A missing symbol that is kRequired fails the test.
const EntryPoints& Cuda();

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// Calls cuInit and makes device 0's primary context current in this thread.
// Failures show as failed expectations. Everything that a session hands out
// lives until the process ends.
class Session {
 public:
  Session();

  CUcontext context() const { return context_; }
  // The smallest size of memory that can be mapped.
  uint64_t granularity() const { return granularity_; }

  CUmemGenericAllocationHandle Create(uint64_t bytes) const;
  CUdeviceptr Reserve(uint64_t bytes) const;
  // Maps `handle` at `address` and grants access to it.
  void MapAt(CUdeviceptr address, uint64_t bytes,
             CUmemGenericAllocationHandle handle) const;
  // Creates memory, maps it at newly reserved addresses and releases the
  // handle.
  CUdeviceptr NewMapping(uint64_t bytes) const;
  int Export(CUmemGenericAllocationHandle handle) const;
  CUmemGenericAllocationHandle Import(int fd) const;

  // Both go through the device and are complete on return.
  void Write(CUdeviceptr address, uint32_t word) const;
  uint32_t Read(CUdeviceptr address) const;

  uint64_t FreeBytes() const;
  uint64_t TotalBytes() const;

 private:
  CUcontext context_ = nullptr;
  uint64_t granularity_ = 0;
};

// The body of a Peer with a context: reports that the context exists, and keeps
// it until the test sends a message or kills the peer.
void HoldContext(Channel& channel);

// Both live until the process ends.
CUdeviceptr Allocate(uint64_t bytes);  // by cuMemAlloc
CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING);

// Exportable memory of device 0.
CUmemAllocationProp DeviceMemoryProperties();
CUmemAccessDesc DeviceAccess(CUmemAccess_flags flags);

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_SESSION_H_
