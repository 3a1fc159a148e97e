#include "tools/lab/device/nccl/device_launch.h"

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tools/lab/device/cudart/runtime_api.h"
#include "tools/lab/device/emucuda.h"
#include "tools/lab/device/nccl/collectives.h"
#include "tools/lab/device/nccl/last_error.h"

namespace fineserve::nccl {
namespace {

constexpr char kKernelName[] = "emucuda_nccl_group";
// Any code will do: for the device, all code has a kernel of every name.
constexpr char kCode[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

// The work of one launch.
struct Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Task> tasks;
  std::optional<uint64_t> ticket;  // none: captured, may run often
};

void RunTasks(Communicator& communicator, const std::vector<Task>& tasks) {
  std::vector<Task> transfers;
  std::string what;
  for (const Task& task : tasks) {
    if (IsTransfer(task.kind)) {
      transfers.push_back(task);
      continue;
    }
    const ncclResult_t result = RunCollective(communicator, task, &what);
    if (result == ncclInternalError) return;  // released
    if (result != ncclSuccess) return communicator.Fail(result, what);
  }
  const ncclResult_t result = RunTransfers(communicator, transfers, &what);
  if (result != ncclSuccess && result != ncclInternalError) {
    communicator.Fail(result, what);
  }
}

// The kernel, whose argument is a Work*.
void Run(const void* const* arguments, void* /*user_data*/) {
  Work* const work = *static_cast<Work* const*>(arguments[0]);
  const std::unique_ptr<Work> owned(work->ticket ? work : nullptr);
  if (!work->communicator->BeginWork(work->ticket)) return;
  RunTasks(*work->communicator, work->tasks);
  work->communicator->EndWork(work->ticket);
}

cudart::cudaKernel_t MakeKernel() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto add = reinterpret_cast<decltype(&emucuda_register_kernel)>(
      driver == nullptr ? nullptr : dlsym(driver, "emucuda_register_kernel"));
  if (add == nullptr) {
    Refuse(ncclUnhandledCudaError,
           "the driver is not the emulated one: load NVIDIA's libnccl.so.2");
    return nullptr;
  }
  const size_t bytes = sizeof(Work*);
  cudart::cudaLibrary_t library = nullptr;
  cudart::cudaKernel_t kernel = nullptr;
  if (add(kKernelName, Run, nullptr, &bytes, 1) != 0 ||
      cudart::cudaLibraryLoadData(&library, kCode, nullptr, nullptr, 0, nullptr,
                                  nullptr, 0) != cudart::cudaSuccess ||
      cudart::cudaLibraryGetKernel(&kernel, library, kKernelName) !=
          cudart::cudaSuccess) {
    Refuse(ncclUnhandledCudaError, "the kernel cannot be loaded");
  }
  return kernel;
}

// Makes the stream `after` wait for the work that the stream `before` holds
// now.
cudart::cudaError_t Order(cudaStream_t before, cudaStream_t after) {
  constexpr unsigned kWithoutTiming = 2;  // cudaEventDisableTiming
  cudart::cudaEvent_t event = nullptr;
  auto error = cudart::cudaEventCreateWithFlags(&event, kWithoutTiming);
  if (error != cudart::cudaSuccess) return error;
  error = cudart::cudaEventRecord(event, before);
  if (error == cudart::cudaSuccess) {
    error = cudart::cudaStreamWaitEvent(after, event, 0);
  }
  cudart::cudaEventDestroy(event);
  return error;
}

// Submits the kernel. The kernel then owns the work, unless it was captured.
cudart::cudaError_t Submit(cudart::cudaKernel_t kernel,
                           std::unique_ptr<Work> work, cudaStream_t stream) {
  cudart::cudaStreamCaptureStatus status = {};
  auto error = cudart::cudaStreamIsCapturing(stream, &status);
  if (error != cudart::cudaSuccess) return error;
  Communicator& communicator = *work->communicator;
  const emucuda::MutexLock lock(communicator.submission());
  const bool captured = status != cudart::cudaStreamCaptureStatusNone;
  if (!captured) work->ticket = communicator.TakeTicket();
  Work* argument = work.get();
  void* arguments[] = {&argument};
  error = cudart::__cudaLaunchKernel(kernel, {1, 1, 1}, {1, 1, 1}, arguments, 0,
                                     stream);
  if (error == cudart::cudaSuccess) {
    // The work of a captured launch lives as long as the process, because
    // nothing reports when the last graph that contains it is gone.
    static_cast<void>(work.release());
  } else if (!captured) {
    communicator.ReturnLastTicket();
  }
  return error;
}

}  // namespace

CurrentDevice::CurrentDevice(int device) {
  if (cudart::cudaGetDevice(&before_) != cudart::cudaSuccess) before_ = -1;
  if (before_ == device) {
    before_ = -1;
  } else {
    cudart::cudaSetDevice(device);
  }
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudart::cudaSetDevice(before_);
}

ncclResult_t Launch(const std::shared_ptr<Communicator>& communicator,
                    std::vector<Task> tasks,
                    const std::vector<cudaStream_t>& streams) {
  static const cudart::cudaKernel_t kernel = MakeKernel();
  if (kernel == nullptr) return ncclUnhandledCudaError;
  const CurrentDevice current(communicator->device());
  const cudaStream_t stream = streams.front();
  auto error = cudart::cudaSuccess;
  for (const cudaStream_t other : streams) {
    if (other != stream && error == cudart::cudaSuccess) {
      error = Order(other, stream);
    }
  }
  if (error == cudart::cudaSuccess) {
    error = Submit(kernel,
                   std::make_unique<Work>(
                       Work{communicator, std::move(tasks), std::nullopt}),
                   stream);
  }
  for (const cudaStream_t other : streams) {
    if (other != stream && error == cudart::cudaSuccess) {
      error = Order(stream, other);
    }
  }
  if (error == cudart::cudaSuccess) return ncclSuccess;
  return Refuse(ncclUnhandledCudaError, "rank %d cannot launch: %s",
                communicator->rank(), cudart::cudaGetErrorString(error));
}

}  // namespace fineserve::nccl
