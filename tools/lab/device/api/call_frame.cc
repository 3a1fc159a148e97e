#include "tools/lab/device/api/call_frame.h"

#include "tools/lab/device/api/driver_state.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/call/capture_rules.h"
#include "tools/lab/device/stream/capture.h"
#include "tools/lab/device/stream/context.h"

namespace fineserve::emucuda {
namespace {

CUresult CheckContext(Require require) {
  const Context* context = CurrentContext();
  if (context == nullptr) {
    return require == Require::kContext ? CUDA_ERROR_INVALID_CONTEXT
                                        : CUDA_SUCCESS;
  }
  if (!context->alive()) {
    return require == Require::kContext ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                        : CUDA_SUCCESS;
  }
  return context->sticky();
}

CUresult Check(const DriverState& driver, Require require) {
  if (require == Require::kNothing) return CUDA_SUCCESS;
  if (const CUresult result = driver.ready()) return result;
  return require == Require::kInit ? CUDA_SUCCESS : CheckContext(require);
}

}  // namespace

constinit thread_local Entry PerThreadCall::current_ = PerThreadCall::kNone;

CUresult BeginCall(Entry entry, Require require) {
  DriverState& driver = DriverState::Get();
  driver.log().Count(entry);
  // In a forked child the injection's lock may be held by a thread that does
  // not exist there.
  if (!driver.forked()) {
    driver.injection().Delay(entry);
    if (const CUresult error = driver.injection().NextFailure(entry)) {
      return error;
    }
  }
  if (const CUresult error = Check(driver, require)) return error;
  return IsUnsafeDuringCapture(entry, DriverSettings().strict_captures)
             ? CheckUnsafeCall()
             : CUDA_SUCCESS;
}

void LogCall(Entry entry, std::span<const uint64_t> args, CUresult result) {
  DriverState::Get().log().Write(entry, args, result);
}

CUresult CheckDevice(CUdevice ordinal) {
  return DriverState::Get().devices().Has(ordinal) ? CUDA_SUCCESS
                                                   : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace fineserve::emucuda
