#ifndef TOOLS_EMUCUDA_API_SUBMIT_WORK_H_
#define TOOLS_EMUCUDA_API_SUBMIT_WORK_H_

#include <functional>

#include "tools/emucuda/api/driver_state.h"
#include "tools/emucuda/api/stream_handle.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/memory/device_work.h"

namespace fineserve::emucuda {

enum class Wait { kNo, kYes };

// Puts work on the stream behind a handle; INVALID_HANDLE if there is none.
inline CUresult SubmitTo(Context& context, CUstream handle, Wait wait,
                         std::function<CUresult()> work) {
  const std::shared_ptr<Stream> stream = FindStream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context& owner = stream->context();
  return wait == Wait::kYes ? owner.RunWork(*stream, std::move(work))
                            : owner.SubmitWork(*stream, std::move(work));
}

// What is captured is not queued: it does not outlive its client.
inline bool IsCapturing(Context& context, CUstream handle) {
  const std::shared_ptr<Stream> stream = FindStream(context, handle);
  return stream != nullptr && stream->capture() != nullptr;
}

inline bool IsDevice(CUdeviceptr address) {
  return Driver::Get().space().Contains(address);
}

inline bool IsPinned(CUdeviceptr address, uint64_t bytes) {
  return Driver::Get().pinned().Contains(reinterpret_cast<void*>(address),
                                         bytes);
}

// Whether the device can reach the address by itself.
inline bool Reachable(CUdeviceptr address) {
  return IsDevice(address) || IsPinned(address, 1);
}

inline Place PlaceOf(CUdeviceptr address) {
  return {address, IsDevice(address)};
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_SUBMIT_WORK_H_
