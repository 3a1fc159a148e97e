// Exported functions: contexts.

#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/stream/context_table.h"
#include "tools/lab/device/stream/current_context.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::CallOnDevice;
using emucuda::Context;
using emucuda::Contexts;
using emucuda::CurrentContext;
using emucuda::Entry;
using emucuda::Logged;
using emucuda::PopCurrentContext;
using emucuda::PushCurrentContext;
using emucuda::Require;

namespace {

CUresult Push(CUcontext handle) {
  Context* context = Contexts().Find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return PushCurrentContext(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Finds the context that a _v2 function names; null means the current one.
CUresult Named(CUcontext handle, Context** context) {
  *context = handle == nullptr ? CurrentContext() : Contexts().Find(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUcontext HandleOf(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

// Waits for the context; afterwards, memory pools release all unused memory.
CUresult Synchronize(Context& context) {
  const CUresult result = context.Synchronize();
  emucuda::Pools().TrimToThresholds();
  return result;
}

CUresult CreateCurrent(CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = Contexts().Create(device, context)) return result;
  return Push(*context);
}

CUresult ReleasePrimary(Entry entry, CUdevice device) {
  return CallOnDevice(entry, device,
                      [&] { return Contexts().ReleasePrimary(device); });
}

CUresult ResetPrimary(Entry entry, CUdevice device) {
  return CallOnDevice(entry, device, [&] {
    Contexts().ResetPrimary(device);
    return CUDA_SUCCESS;
  });
}

// Scheduling flags are accepted and have no effect.
CUresult SetPrimaryFlags(Entry entry, CUdevice device) {
  return CallOnDevice(entry, device, [] { return CUDA_SUCCESS; });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxRetain, device, [&] {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return Contexts().RetainPrimary(device, context);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return ReleasePrimary(Entry::cuDevicePrimaryCtxRelease_v2, device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return ResetPrimary(Entry::cuDevicePrimaryCtxReset_v2, device);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return SetPrimaryFlags(Entry::cuDevicePrimaryCtxSetFlags_v2, device);
}

// The first versions, which the CUDA runtime still looks up, do the same as the
// later ones.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return ReleasePrimary(Entry::cuDevicePrimaryCtxRelease, device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return ResetPrimary(Entry::cuDevicePrimaryCtxReset, device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return SetPrimaryFlags(Entry::cuDevicePrimaryCtxSetFlags, device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                    int* active) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxGetState, device, [&] {
    if (flags == nullptr || active == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = 0;
    *active = Contexts().PrimaryActive(device) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                        CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v2, device,
                      [&] { return CreateCurrent(context, device); });
}

// Execution affinity and the other creation parameters are not emulated.
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params,
                        int param_count, unsigned int flags, CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v3, device, [&] {
    if (params != nullptr && param_count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return CreateCurrent(context, device);
  });
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params,
                        unsigned int flags, CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v4, device, [&] {
    if (params != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return CreateCurrent(context, device);
  });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return Call(Entry::cuCtxDestroy_v2, Require::kInit, Logged(context), [&] {
    const CUresult result = Contexts().Destroy(context);
    if (result == CUDA_SUCCESS && HandleOf(CurrentContext()) == context) {
      PopCurrentContext();
    }
    return result;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return Call(Entry::cuCtxPushCurrent_v2, Require::kInit, Logged(context),
              [&] { return Push(context); });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return Call(Entry::cuCtxPopCurrent_v2, Require::kInit, [&] {
    Context* top = PopCurrentContext();
    if (top == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = HandleOf(top);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return Call(Entry::cuCtxSetCurrent, Require::kInit, Logged(context), [&] {
    Context* before = PopCurrentContext();
    if (context == nullptr) return CUDA_SUCCESS;
    const CUresult result = Push(context);
    if (result != CUDA_SUCCESS && before != nullptr) {
      PushCurrentContext(before);
    }
    return result;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return Call(Entry::cuCtxGetCurrent, Require::kInit, [&] {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = HandleOf(CurrentContext());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return CallInContext(Entry::cuCtxGetDevice, [&](Context& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  return Call(Entry::cuCtxGetDevice_v2, Require::kInit, Logged(handle), [&] {
    Context* context = nullptr;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = Named(handle, &context)) return result;
    *device = context->device();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return CallInContext(Entry::cuCtxSynchronize,
                       [](Context& context) { return Synchronize(context); });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  return Call(Entry::cuCtxSynchronize_v2, Require::kInit, Logged(handle), [&] {
    Context* context = nullptr;
    if (const CUresult result = Named(handle, &context)) return result;
    return Synchronize(*context);
  });
}

}  // namespace fineserve::driver
