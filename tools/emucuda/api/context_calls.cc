// Exported functions: contexts.

#include "tools/emucuda/api/call_frame.h"
#include "tools/emucuda/api/driver_state.h"
#include "tools/emucuda/api/exported_prototypes.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::CurrentContext;
using emucuda::Driver;
using emucuda::Entry;
using emucuda::PopCurrentContext;
using emucuda::PushCurrentContext;
using emucuda::Require;

namespace {

template <typename Body>
CUresult CallOnDevice(Entry entry, CUdevice device, Body body) {
  const auto checked = [&] {
    if (!Driver::Get().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
    return body(Driver::Get());
  };
  return Call(entry, Require::kInit, checked, device);
}

CUresult Push(CUcontext handle) {
  Context* context = Driver::Get().contexts().Find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return PushCurrentContext(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The context that a _v2 function names: null means the current one.
CUresult Named(CUcontext handle, Context** context) {
  *context = handle == nullptr ? CurrentContext()
                               : Driver::Get().contexts().Find(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUcontext HandleOf(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

// Lets memory pools give back what nothing uses any more, too.
CUresult Synchronize(Context& context) {
  const CUresult result = context.Synchronize();
  Driver::Get().pools().TrimToThresholds();
  return result;
}

CUresult CreateCurrent(Driver& driver, CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.memory(device).ClaimSlot();
  *context = driver.contexts().Create(device);
  return Push(*context);
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxRetain, device, [&](Driver& d) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    d.memory(device).ClaimSlot();
    *context = d.contexts().RetainPrimary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return CallOnDevice(
      Entry::cuDevicePrimaryCtxRelease_v2, device,
      [&](Driver& d) { return d.contexts().ReleasePrimary(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxReset_v2, device,
                      [&](Driver& d) {
                        d.contexts().ResetPrimary(device);
                        return CUDA_SUCCESS;
                      });
}

// Scheduling flags mean nothing here; accepted.
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxSetFlags_v2, device,
                      [](Driver&) { return CUDA_SUCCESS; });
}

// The first versions, which the CUDA runtime still asks for, do the same.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxRelease, device, [&](Driver& d) {
    return d.contexts().ReleasePrimary(device);
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxReset, device, [&](Driver& d) {
    d.contexts().ResetPrimary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxSetFlags, device,
                      [](Driver&) { return CUDA_SUCCESS; });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                    int* active) {
  return CallOnDevice(Entry::cuDevicePrimaryCtxGetState, device,
                      [&](Driver& d) {
                        if (flags == nullptr || active == nullptr) {
                          return CUDA_ERROR_INVALID_VALUE;
                        }
                        *flags = 0;
                        *active = d.contexts().PrimaryActive(device) ? 1 : 0;
                        return CUDA_SUCCESS;
                      });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                        CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v2, device, [&](Driver& d) {
    return CreateCurrent(d, context, device);
  });
}

// Shares of the device and streams of other APIs are not emulated.
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params,
                        int param_count, unsigned int flags, CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v3, device, [&](Driver& d) {
    if (params != nullptr && param_count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return CreateCurrent(d, context, device);
  });
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params,
                        unsigned int flags, CUdevice device) {
  return CallOnDevice(Entry::cuCtxCreate_v4, device, [&](Driver& d) {
    if (params != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return CreateCurrent(d, context, device);
  });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return Call(
      Entry::cuCtxDestroy_v2, Require::kInit,
      [&] {
        const CUresult result = Driver::Get().contexts().Destroy(context);
        if (result == CUDA_SUCCESS && HandleOf(CurrentContext()) == context) {
          PopCurrentContext();
        }
        return result;
      },
      context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return Call(
      Entry::cuCtxPushCurrent_v2, Require::kInit, [&] { return Push(context); },
      context);
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
  return Call(
      Entry::cuCtxSetCurrent, Require::kInit,
      [&] {
        Context* before = PopCurrentContext();
        if (context == nullptr) return CUDA_SUCCESS;
        const CUresult result = Push(context);
        if (result != CUDA_SUCCESS && before != nullptr) {
          PushCurrentContext(before);
        }
        return result;
      },
      context);
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
  return Call(
      Entry::cuCtxGetDevice_v2, Require::kInit,
      [&] {
        Context* context = nullptr;
        if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = Named(handle, &context)) return result;
        *device = context->device();
        return CUDA_SUCCESS;
      },
      handle);
}

CUresult cuCtxSynchronize() {
  return CallInContext(Entry::cuCtxSynchronize,
                       [](Context& context) { return Synchronize(context); });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  return Call(
      Entry::cuCtxSynchronize_v2, Require::kInit,
      [&] {
        Context* context = nullptr;
        if (const CUresult result = Named(handle, &context)) return result;
        return Synchronize(*context);
      },
      handle);
}

}  // namespace fineserve::driver
