#ifndef TOOLS_LAB_DEVICE_API_SUBMIT_WORK_H_
#define TOOLS_LAB_DEVICE_API_SUBMIT_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::emucuda {

// Finds the stream behind a handle; 0 is the current context's default stream
// or, in a per-thread variant, the calling thread's own stream. Returns null if
// there is no such stream, or if its context is gone.
std::shared_ptr<Stream> FindStream(Context& current, CUstream handle);

enum class Wait { kNo, kYes };

// Submits work to the stream behind a handle. Returns INVALID_HANDLE if there
// is no such stream.
CUresult SubmitTo(Context& context, CUstream handle, Wait wait,
                  std::function<CUresult()> work);

// True if the stream captures work instead of queueing it. Captured work does
// not outlive its client.
bool IsCapturing(Context& context, CUstream handle);

bool IsDevice(CUdeviceptr address);
bool IsPinned(CUdeviceptr address, uint64_t bytes);
// True if the device can reach the address without staging.
bool Reachable(CUdeviceptr address);

Place PlaceOf(CUdeviceptr address);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_SUBMIT_WORK_H_
