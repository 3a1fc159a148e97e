#include "tests/vllm/host_device/cuda_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

// As in cuda_runtime_api.h, which this library is built without. PyTorch has
// loaded the runtime.
extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*),
                                  void* user_data);

namespace fineserve::host_device {
namespace {

struct Work {
  const char* name;
  std::function<void()> run;
};

void Run(void* user_data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(user_data));
  try {
    work->run();
  } catch (const std::exception& error) {
    fprintf(stderr, "host_device: %s failed on its stream: %s\n", work->name,
            error.what());
    abort();
  }
}

c10::Stream CurrentStream(const c10::impl::VirtualGuardImpl& cuda) {
  return cuda.getStream(cuda.getDevice());
}

}  // namespace

void Enqueue(const char* name, std::function<void()> run) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  auto work = std::make_unique<Work>(Work{name, std::move(run)});
  const int error = cudaLaunchHostFunc(
      cuda.getStreamNativeHandle(CurrentStream(cuda)), Run, work.get());
  TORCH_CHECK(error == 0, name, ": cudaLaunchHostFunc returned ", error);
  static_cast<void>(work.release());
}

void SynchronizeCurrentStream() {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  cuda.synchronizeStream(CurrentStream(cuda));
}

}  // namespace fineserve::host_device
