#ifndef SHIM_TESTDATA_FAKE_DRIVER_H_
#define SHIM_TESTDATA_FAKE_DRIVER_H_

// A driver's entry points for tests. They log the calls and fail on demand.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/host/real_driver.h"

namespace fineserve::shim {

// The calls that the fake driver received, and the state it holds. For one test
// at a time.
struct FakeDriverState {
  std::vector<std::string> log;
  // The function that fails `fail_times` times, after `fail_after` further
  // successes.
  std::string fail;
  int fail_after = 0;
  int fail_times = 1;
  driver::CUresult fail_with = driver::CUDA_ERROR_UNKNOWN;
  // The balance of what is held.
  uint64_t reserved_bytes = 0;
  uint64_t mapped_bytes = 0;
  int handles = 0;  // imported or retained
  // The bytes that were copied into each handle's memory; they are dropped with
  // the mapping.
  std::map<driver::CUmemGenericAllocationHandle, std::string> contents;
  // The mappings, by address. Like a driver, the fake maps no address twice and
  // unmaps only whole mappings.
  struct Mapping {
    uint64_t bytes;
    driver::CUmemGenericAllocationHandle handle;
    bool accessible;
    driver::CUmemAccess_flags access =
        driver::CU_MEM_ACCESS_FLAGS_PROT_NONE;  // of the first device
  };
  std::map<driver::CUdeviceptr, Mapping> mappings;
  // True if a range in which a handle is mapped twice must be refused.
  bool aliases_apart = false;
  // The bytes of each handle that cuMemCreate made and that is not released
  // yet.
  std::map<driver::CUmemGenericAllocationHandle, uint64_t> created;
  // The free memory: cuMemCreate takes from it, and the release of the handle
  // gives it back. Unlike a driver, the fake does not wait for the last
  // mapping.
  uint64_t free_bytes = uint64_t{64} << 30;
  driver::CUdeviceptr next_address = 0;
  driver::CUmemGenericAllocationHandle next_created = 0;
  std::vector<driver::CUmemGenericAllocationHandle> zeroed;
  driver::CUmemGenericAllocationHandle next_handle = 5;
  bool rdma_capable = false;  // its device
  uint64_t accessible_bytes = 0;
  int devices = 1;
  // The device of imported memory, and whether the first device reaches it.
  driver::CUdevice imported_device = 1;
  bool reaches_peers = true;
  driver::CUdevice current_device = 0;
  // The access of all devices except the first, by address and device.
  std::map<std::pair<driver::CUdeviceptr, driver::CUdevice>,
           driver::CUmemAccess_flags>
      peers;
  std::map<driver::CUdevice, driver::CUmemAccess_flags> pool_peers;
  int events = 0;
  // The current contexts of the single thread, above a first one that is always
  // there, and the contexts of its streams and of the event made last.
  std::vector<driver::CUcontext> pushed;
  bool no_context = false;  // there is no first one either
  std::set<driver::CUcontext> destroyed;
  driver::CUcontext primary = nullptr;  // the device's, if it is active
  int primary_references = 0;           // that were added since the start
  driver::CUcontext stream_context = nullptr;  // null: the current one
  driver::CUcontext event_context = nullptr;
  // The addresses at which mappings were made, removed or given access, in
  // order.
  struct Touched {
    driver::CUdeviceptr address;
    uint64_t bytes;
  };
  std::vector<Touched> touched;
  // The results of queries of streams and pools.
  bool passed = true;
  int passes_after = -1;  // queries until `passed` becomes true; -1 for never
  bool capturing = false;
  // The thread's capture mode. In any mode except RELAXED, queries of events
  // and all calls that change memory are forbidden while a capture is under way
  // in some thread.
  driver::CUstreamCaptureMode capture_mode =
      driver::CU_STREAM_CAPTURE_MODE_GLOBAL;
  int forbidden_calls = 0;
  driver::CUmemAccess_flags pool_access =
      driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
};

inline constexpr driver::CUdeviceptr kDriversOwn = 0x7000'0000;
inline constexpr driver::CUdeviceptr kReserved = 0x10'0000'0000;
inline constexpr uint64_t kFakeTotalBytes = uint64_t{80} << 30;
// The first handle that cuMemCreate makes; further handles follow it.
inline constexpr driver::CUmemGenericAllocationHandle kDriversHandle = 0x9999;
// The handle of the fake daemon's pool granule g is kPoolHandle + g.
inline constexpr driver::CUmemGenericAllocationHandle kPoolHandle = 0x100000;
inline bool IsDrivers(driver::CUmemGenericAllocationHandle handle) {
  return handle >= kDriversHandle && handle < kPoolHandle;
}
inline constexpr size_t kFakeGranularity = size_t{2} << 20;
extern const uint8_t kFakeGpu[16];

FakeDriverState& TheFakeDriver();

// Resets the state and returns the entry points.
Driver NewFakeDriver();

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_FAKE_DRIVER_H_
