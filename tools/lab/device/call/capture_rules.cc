#include "tools/lab/device/call/capture_rules.h"

#include <array>

namespace fineserve::emucuda {
namespace {

// CUDA names cudaMalloc and leaves the others to experiment. The sources:
//   cuda.h    cuThreadExchangeStreamCaptureMode
//   guide     CUDA C++ Programming Guide, "Prohibited and Unhandled Operations"
//   hip       HIP API 7.0 changes, "Stream capture updates": what AMD changed
//   to
//             match CUDA's behaviour
//   pytorch   the calls around which PyTorch's allocators switch to the relaxed
//             mode (CUDACachingAllocator, CachingHostAllocator)
//   warp      wp.CaptureMode.RELAXED
struct Rule {
  Entry entry;
  const char* source;
};
constexpr Rule kRules[] = {
    {Entry::cuMemAlloc_v2, "cuda.h"},
    {Entry::cuMemAllocPitch_v2, "cuda.h"},
    {Entry::cuMemAllocManaged, "hip"},
    {Entry::cuMemFree_v2, "warp"},
    {Entry::cuMemAllocHost_v2, "pytorch"},
    {Entry::cuMemHostAlloc, "pytorch"},
    {Entry::cuMemFreeHost, "pytorch"},
    {Entry::cuMemHostRegister_v2, "pytorch"},
    {Entry::cuMemHostUnregister, "pytorch"},
    {Entry::cuMemAdvise, "hip"},
    {Entry::cuMemAdvise_v2, "hip"},
    {Entry::cuMemPoolCreate, "hip"},
    {Entry::cuMemPoolDestroy, "hip"},
    {Entry::cuDeviceSetMemPool, "hip"},
    {Entry::cuEventQuery, "hip"},
    {Entry::cuEventSynchronize, "guide"},
};

constexpr std::array<bool, kEntries> Table() {
  std::array<bool, kEntries> unsafe = {};
  for (const Rule& rule : kRules) {
    unsafe[static_cast<size_t>(rule.entry)] = true;
  }
  return unsafe;
}
constexpr std::array<bool, kEntries> kUnsafe = Table();

}  // namespace

bool IsUnsafeDuringCapture(Entry entry, bool strict) {
  switch (entry) {
    case Entry::cuMemCreate:
    case Entry::cuMemRelease:
    case Entry::cuMemMap:
    case Entry::cuMemUnmap:
    case Entry::cuMemSetAccess:
    case Entry::cuMemAddressReserve:
    case Entry::cuMemAddressFree:
    case Entry::cuMemImportFromShareableHandle:
      return strict;
    default:
      return kUnsafe[static_cast<size_t>(entry)];
  }
}

}  // namespace fineserve::emucuda
