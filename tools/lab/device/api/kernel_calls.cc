// Exported functions: kernels, functions, launches. A CUfunction is a CUkernel
// here.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/api/submit_work.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/kernel/library.h"
#include "tools/lab/device/linger/linger.h"
#include "tools/lab/device/machine/device_attributes.h"
#include "tools/lab/device/machine/environment_settings.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::HostKernel;
using emucuda::Kernel;
using emucuda::KernelArguments;
using emucuda::kMaxThreadsPerBlock;
using emucuda::Linger;
using emucuda::Logged;
using emucuda::Require;

namespace {

// Counts launches of kernels that the device cannot run. Relaxed: a statistic.
std::atomic<uint64_t> skipped_launches{0};

struct Shape {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
};

CUresult CheckShape(const Shape& s) {
  const uint64_t blocks = uint64_t{s.grid_x} * s.grid_y * s.grid_z;
  const uint64_t threads = uint64_t{s.block_x} * s.block_y * s.block_z;
  const bool good = blocks > 0 && threads > 0 && threads <= kMaxThreadsPerBlock;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

KernelArguments CopyArguments(const HostKernel& kernel, void** arguments) {
  KernelArguments copies;
  for (size_t i = 0; i < kernel.argument_bytes.size(); ++i) {
    const char* const value = static_cast<const char*>(arguments[i]);
    copies.emplace_back(value, value + kernel.argument_bytes[i]);
  }
  return copies;
}

// Returns the journal's records of what a launch will write, for as long as it
// is queued.
std::vector<std::shared_ptr<Linger::Record>> QueueFills(
    const HostKernel& kernel, const KernelArguments& arguments, int device) {
  std::vector<std::shared_ptr<Linger::Record>> records;
  if (kernel.fills == nullptr) return records;
  for (const emucuda::KernelFill& fill : kernel.fills(arguments)) {
    records.push_back(emucuda::LingeringWork().QueueFill(
        emucuda::Addresses(), device, fill.to, fill.pattern, fill.bytes));
  }
  return records;
}

// Runs or skips a kernel; a skipped kernel, too, takes its turn in the stream.
CUresult Submit(Context& context, std::shared_ptr<Kernel> kernel,
                CUstream handle, void** arguments) {
  const auto stream = emucuda::FindStream(context, handle);
  // A copy may go to a stream of another context, but a launch may not (CUDA
  // C++ Programming Guide, "Stream and Event Behavior").
  if (stream == nullptr || &stream->context() != &context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (kernel->host() == nullptr) {
    if (emucuda::DriverSettings().refuse_unknown_kernels) {
      fprintf(stderr, "emucuda: refused the unknown kernel %s\n",
              kernel->name().c_str());
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    skipped_launches.fetch_add(1, std::memory_order_relaxed);
    return context.SubmitWork(*stream, [] { return CUDA_SUCCESS; });
  }
  // A packed argument buffer (`extra`) is not supported for kernels that run.
  if (arguments == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelArguments copies = CopyArguments(*kernel->host(), arguments);
  const int device = context.device();
  auto lingering = stream->capture() != nullptr
                       ? std::vector<std::shared_ptr<Linger::Record>>()
                       : QueueFills(*kernel->host(), copies, device);
  return context.SubmitWork(
      *stream, [device, kernel = std::move(kernel), copies = std::move(copies),
                lingering = std::move(lingering)] {
        return kernel->host()->run(emucuda::Addresses(), device, copies);
      });
}

CUresult Launch(Context& context, CUfunction function, const Shape& shape,
                CUstream stream, void** arguments) {
  auto kernel = emucuda::FindFunction(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = CheckShape(shape);
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult grown = emucuda::GrowContext(context)) return grown;
  return Submit(context, std::move(kernel), stream, arguments);
}

CUresult Launch(Entry entry, CUfunction function, const Shape& shape,
                CUstream stream, void** arguments) {
  return CallInContext(entry, Logged(function, stream), [&](Context& context) {
    return Launch(context, function, shape, stream, arguments);
  });
}

// Runs `body(kernel)` on the kernel behind a CUkernel, if the device exists.
template <typename Body>
CUresult CallOnKernel(Entry entry, CUkernel handle, CUdevice device,
                      Body body) {
  const auto checked = [&] {
    if (const CUresult result = emucuda::CheckDevice(device)) return result;
    const auto kernel = emucuda::Kernels().Find(handle);
    return kernel != nullptr ? body(*kernel) : CUDA_ERROR_INVALID_HANDLE;
  };
  return Call(entry, Require::kInit, Logged(handle), checked);
}

// Runs `body(kernel)` on the kernel behind a CUfunction.
template <typename Body>
CUresult CallOnFunction(Entry entry, CUfunction function, Body body) {
  const auto checked = [&] {
    const auto kernel = emucuda::FindFunction(function);
    return kernel != nullptr ? body(*kernel) : CUDA_ERROR_INVALID_HANDLE;
  };
  return Call(entry, Require::kInit, Logged(function), checked);
}

CUresult GetName(const Kernel& kernel, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel.name().c_str();
  return CUDA_SUCCESS;
}

CUresult GetAttribute(const Kernel& kernel, CUfunction_attribute attribute,
                      int* value) {
  return value != nullptr && kernel.Attribute(attribute, value)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult SetAttribute(Kernel& kernel, CUfunction_attribute attribute,
                      int value) {
  return kernel.SetAttribute(attribute, value) ? CUDA_SUCCESS
                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult ActiveBlocks(int* blocks, CUfunction function, int block_threads) {
  if (blocks == nullptr || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (emucuda::FindFunction(function) == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *blocks = std::min(emucuda::kMaxThreadsPerMultiprocessor / block_threads,
                     emucuda::kMaxBlocksPerMultiprocessor);
  return CUDA_SUCCESS;
}

CUresult PotentialBlockSize(int* grid_blocks, int* block_threads, int limit) {
  if (grid_blocks == nullptr || block_threads == nullptr || limit < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *block_threads =
      limit == 0 ? kMaxThreadsPerBlock : std::min(limit, kMaxThreadsPerBlock);
  // Suggests two full blocks per multiprocessor.
  *grid_blocks = 2 * emucuda::kMultiprocessors;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return CallOnKernel(Entry::cuKernelGetFunction, kernel, 0, [&](Kernel&) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return CallOnKernel(Entry::cuKernelGetName, kernel, 0,
                      [&](Kernel& k) { return GetName(k, name); });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute,
                              CUkernel kernel, CUdevice device) {
  return CallOnKernel(
      Entry::cuKernelGetAttribute, kernel, device,
      [&](Kernel& k) { return GetAttribute(k, attribute, value); });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                              CUkernel kernel, CUdevice device) {
  return CallOnKernel(
      Entry::cuKernelSetAttribute, kernel, device,
      [&](Kernel& k) { return SetAttribute(k, attribute, value); });
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return CallOnFunction(Entry::cuFuncGetName, function,
                        [&](Kernel& k) { return GetName(k, name); });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                            CUfunction function) {
  return CallOnFunction(Entry::cuFuncGetAttribute, function, [&](Kernel& k) {
    return GetAttribute(k, attribute, value);
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                            int value) {
  return CallOnFunction(Entry::cuFuncSetAttribute, function, [&](Kernel& k) {
    return SetAttribute(k, attribute, value);
  });
}

// There are no caches to divide.
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache /*preferred*/) {
  return CallOnFunction(Entry::cuFuncSetCacheConfig, function,
                        [](Kernel&) { return CUDA_SUCCESS; });
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x,
                        unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  return Launch(Entry::cuLaunchKernel, function,
                {grid_x, grid_y, grid_z, block_x, block_y, block_z}, stream,
                arguments);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                   unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream,
                                   void** arguments) {
  return Launch(Entry::cuLaunchCooperativeKernel, function,
                {grid_x, grid_y, grid_z, block_x, block_y, block_z}, stream,
                arguments);
}

// A launch's attributes (clusters, priorities) have no effect here.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                          void** arguments, void** extra) {
  return CallInContext(
      Entry::cuLaunchKernelEx, Logged(function), [&](Context& context) {
        if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return Launch(context, function,
                      {config->gridDimX, config->gridDimY, config->gridDimZ,
                       config->blockDimX, config->blockDimY, config->blockDimZ},
                      config->hStream, arguments);
      });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                     CUfunction function,
                                                     int block_threads,
                                                     size_t shared_bytes) {
  return Call(Entry::cuOccupancyMaxActiveBlocksPerMultiprocessor,
              Require::kInit, Logged(function),
              [&] { return ActiveBlocks(blocks, function, block_threads); });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction function, int block_threads, size_t shared_bytes,
    unsigned int flags) {
  return Call(Entry::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              Require::kInit, Logged(function),
              [&] { return ActiveBlocks(blocks, function, block_threads); });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid_blocks, int* block_threads,
                                          CUfunction function,
                                          CUoccupancyB2DSize shared_bytes_of,
                                          size_t dynamic_shared_bytes,
                                          int limit) {
  return CallOnFunction(
      Entry::cuOccupancyMaxPotentialBlockSize, function, [&](Kernel&) {
        return PotentialBlockSize(grid_blocks, block_threads, limit);
      });
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* grid_blocks, int* block_threads, CUfunction function,
    CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes, int limit,
    unsigned int flags) {
  return CallOnFunction(
      Entry::cuOccupancyMaxPotentialBlockSizeWithFlags, function, [&](Kernel&) {
        return PotentialBlockSize(grid_blocks, block_threads, limit);
      });
}

// The emulated GPU has compute capability 8.0, which has no clusters.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                      const CUlaunchConfig* config) {
  return CallOnFunction(Entry::cuOccupancyMaxActiveClusters, function,
                        [&](Kernel&) {
                          return clusters == nullptr || config == nullptr
                                     ? CUDA_ERROR_INVALID_VALUE
                                     : CUDA_ERROR_NOT_SUPPORTED;
                        });
}

}  // namespace fineserve::driver

uint64_t emucuda_skipped_launches() {
  return fineserve::driver::skipped_launches.load(std::memory_order_relaxed);
}
