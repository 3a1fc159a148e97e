#ifndef TOOLS_EMUCUDA_API_SUBMIT_WORK_H_
#define TOOLS_EMUCUDA_API_SUBMIT_WORK_H_

#include <functional>

#include "tools/emucuda/memory/device_work.h"
#include "tools/emucuda/stream/context.h"

namespace fineserve::emucuda {

enum class Wait { kNo, kYes };

// Puts work on the stream behind a handle; INVALID_HANDLE if there is none.
CUresult SubmitTo(Context& context, CUstream handle, Wait wait,
                  std::function<CUresult()> work);

// Whether work on that stream is captured instead of queued: what is captured
// does not outlive its client.
bool IsCapturing(Context& context, CUstream handle);

bool IsDevice(CUdeviceptr address);
bool IsPinned(CUdeviceptr address, uint64_t bytes);
// Whether the device can reach the address by itself.
bool Reachable(CUdeviceptr address);

Place PlaceOf(CUdeviceptr address);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_SUBMIT_WORK_H_
