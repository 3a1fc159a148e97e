#include "tools/lab/device/api/submit_work.h"

#include <memory>
#include <utility>

#include "tools/lab/device/allocations/pinned_memory.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/machine/handle_registry.h"

namespace fineserve::emucuda {

std::shared_ptr<Stream> FindStream(Context& current, CUstream handle) {
  const uint64_t number = reinterpret_cast<uint64_t>(handle);
  if (number == driver::CU_STREAM_PER_THREAD ||
      (number == 0 && PerThreadCall::active())) {
    return current.per_thread_stream();
  }
  if (number == 0 || number == driver::CU_STREAM_LEGACY) {
    return current.default_stream();
  }
  auto stream = Streams().Find(handle);
  return stream != nullptr && stream->context().alive() ? stream : nullptr;
}

CUresult SubmitTo(Context& context, CUstream handle, Wait wait,
                  std::function<CUresult()> work) {
  const std::shared_ptr<Stream> stream = FindStream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context& owner = stream->context();
  return wait == Wait::kYes ? owner.RunWork(*stream, std::move(work))
                            : owner.SubmitWork(*stream, std::move(work));
}

bool IsCapturing(Context& context, CUstream handle) {
  const std::shared_ptr<Stream> stream = FindStream(context, handle);
  return stream != nullptr && stream->capture() != nullptr;
}

bool IsDevice(CUdeviceptr address) { return Addresses().Contains(address); }

bool IsPinned(CUdeviceptr address, uint64_t bytes) {
  return Pinned().Contains(reinterpret_cast<void*>(address), bytes);
}

bool Reachable(CUdeviceptr address) {
  return IsDevice(address) || IsPinned(address, 1);
}

Place PlaceOf(CUdeviceptr address) { return {address, IsDevice(address)}; }

}  // namespace fineserve::emucuda
