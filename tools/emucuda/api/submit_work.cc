#include "tools/emucuda/api/submit_work.h"

#include <memory>
#include <utility>

#include "tools/emucuda/api/stream_handle.h"
#include "tools/emucuda/api/subsystems.h"
#include "tools/emucuda/heap/pinned_memory.h"

namespace fineserve::emucuda {

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
