// Exported functions: streams and events.

#include <memory>

#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {
namespace {

// A callback of cudaStreamAddCallback, which runs once and then frees this
// object.
struct Callback {
  cudaStreamCallback_t function;
  cudaStream_t stream;
  void* user_data;
};

// Passes success as the status: if its context has died, a stream runs no
// callbacks.
void RunCallback(void* user_data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(user_data));
  callback->function(callback->stream, cudaSuccess, callback->user_data);
}

cudaError_t AddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                        void* user_data) {
  auto callback =
      std::make_unique<Callback>(Callback{function, stream, user_data});
  const cudaError_t error = Ask<&DriverCalls::cuLaunchHostFunc>(
      stream, cudaHostFn_t{RunCallback}, static_cast<void*>(callback.get()));
  if (error == cudaSuccess) static_cast<void>(callback.release());
  return error;
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Forward<&DriverCalls::cuStreamCreate>(stream,
                                               driver::CU_STREAM_DEFAULT);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream,
                                      unsigned int flags) {
  return Forward<&DriverCalls::cuStreamCreate>(stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream,
                                         unsigned int flags, int priority) {
  return Forward<&DriverCalls::cuStreamCreateWithPriority>(stream, flags,
                                                           priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Forward<&DriverCalls::cuStreamDestroy>(stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Forward<&DriverCalls::cuStreamSynchronize>(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Forward<&DriverCalls::cuStreamQuery>(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned int flags) {
  return Forward<&DriverCalls::cuStreamWaitEvent>(stream, event, flags);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return Forward<&DriverCalls::cuStreamGetPriority>(stream, priority);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return Forward<&DriverCalls::cuStreamGetFlags>(stream, flags);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return Forward<&DriverCalls::cuStreamGetId>(stream, id);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                  cudaStreamCallback_t callback,
                                  void* user_data, unsigned int flags) {
  return CallInContext([&] {
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    return AddCallback(stream, callback, user_data);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void* user_data) {
  return Forward<&DriverCalls::cuLaunchHostFunc>(stream, function, user_data);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Forward<&DriverCalls::cuEventCreate>(event, driver::CU_EVENT_DEFAULT);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Forward<&DriverCalls::cuEventCreate>(event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Forward<&DriverCalls::cuEventRecord>(event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned int flags) {
  if (flags == 0) return cudaEventRecord(event, stream);
  return Forward<&DriverCalls::cuEventRecordWithFlags>(event, stream, flags);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Forward<&DriverCalls::cuEventQuery>(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Forward<&DriverCalls::cuEventSynchronize>(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
  return Forward<&DriverCalls::cuEventElapsedTime>(milliseconds, start, end);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Forward<&DriverCalls::cuEventDestroy>(event);
}

}  // namespace fineserve::cudart
