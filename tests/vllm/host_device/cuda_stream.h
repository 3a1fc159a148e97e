#ifndef TESTS_VLLM_HOST_DEVICE_CUDA_STREAM_H_
#define TESTS_VLLM_HOST_DEVICE_CUDA_STREAM_H_

#include <functional>

namespace fineserve::host_device {

// Runs `work` on PyTorch's current CUDA stream, behind what was submitted
// before it (cudaLaunchHostFunc). As with a kernel, the caller does not wait,
// and work that fails ends the process: nothing that follows it could be right.
// `name` is what the message then says.
void Enqueue(const char* name, std::function<void()> work);

// Waits until everything on PyTorch's current CUDA stream has run.
void SynchronizeCurrentStream();

}  // namespace fineserve::host_device

#endif  // TESTS_VLLM_HOST_DEVICE_CUDA_STREAM_H_
