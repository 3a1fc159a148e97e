// Exported functions: modules, and what functions of either kind of handle say
// of themselves. A CUmodule is a CUlibrary here, and a CUfunction a CUkernel.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "tools/emucuda/api/call_frame.h"
#include "tools/emucuda/api/driver_state.h"
#include "tools/emucuda/api/exported_prototypes.h"
#include "tools/emucuda/kernel/code_image.h"
#include "tools/emucuda/kernel/kernel.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Kernel;
using emucuda::Library;
using emucuda::Require;

namespace {

CUlibrary LibraryOf(CUmodule module) {
  return reinterpret_cast<CUlibrary>(module);
}

CUresult LoadImage(const void* image, CUlibrary* library) {
  if (library == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!emucuda::LooksLikeCode(image)) return CUDA_ERROR_INVALID_IMAGE;
  *library = emucuda::Libraries().Add(std::make_shared<Library>());
  return CUDA_SUCCESS;
}

CUresult LoadImage(const void* image, CUmodule* module) {
  return LoadImage(image, reinterpret_cast<CUlibrary*>(module));
}

CUresult LoadFile(const char* path, CUlibrary* library) {
  if (path == nullptr || library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  // One more, so that text ends.
  char start[emucuda::kCodeHeaderBytes + 1] = {};
  file.read(start, emucuda::kCodeHeaderBytes);
  return LoadImage(start, library);
}

// CUDA_MODULE_LOADING=EAGER, or lazily, as by default.
CUmoduleLoadingMode LoadingMode() {
  const char* mode = getenv("CUDA_MODULE_LOADING");
  return mode != nullptr && strcmp(mode, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                       : CU_MODULE_LAZY_LOADING;
}

// Runs `body(kernel)` on the kernel behind a CUfunction.
template <typename Body>
CUresult CallOnFunction(Entry entry, CUfunction function, Body body) {
  const auto checked = [&] {
    const auto kernel = emucuda::FindFunction(function);
    return kernel != nullptr ? body(*kernel) : CUDA_ERROR_INVALID_HANDLE;
  };
  return Call(entry, Require::kInit, checked, function);
}

CUresult PotentialBlockSize(int* grid_blocks, int* block_threads, int limit) {
  if (grid_blocks == nullptr || block_threads == nullptr || limit < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr int kMaxThreads = 1024;
  constexpr int kBlocks = 2 * 108;  // two full blocks a multiprocessor
  *block_threads = limit == 0 ? kMaxThreads : std::min(limit, kMaxThreads);
  *grid_blocks = kBlocks;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  return CallInContext(Entry::cuModuleLoad, [&](Context&) {
    return LoadFile(file, reinterpret_cast<CUlibrary*>(module));
  });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return CallInContext(Entry::cuModuleLoadData,
                       [&](Context&) { return LoadImage(image, module); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image,
                            unsigned int count, CUjit_option* options,
                            void** values) {
  return CallInContext(Entry::cuModuleLoadDataEx,
                       [&](Context&) { return LoadImage(image, module); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return CallInContext(Entry::cuModuleLoadFatBinary,
                       [&](Context&) { return LoadImage(image, module); });
}

CUresult cuModuleUnload(CUmodule module) {
  return CallInContext(
      Entry::cuModuleUnload,
      [&](Context&) {
        return emucuda::Libraries().Remove(LibraryOf(module)) != nullptr
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_HANDLE;
      },
      module);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return Call(Entry::cuModuleGetLoadingMode, Require::kInit, [&] {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = LoadingMode();
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                             const char* name) {
  return CallInContext(
      Entry::cuModuleGetFunction,
      [&](Context&) {
        if (function == nullptr || name == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const auto library = emucuda::Libraries().Find(LibraryOf(module));
        if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        *function = reinterpret_cast<CUfunction>(library->FindKernel(name));
        return CUDA_SUCCESS;
      },
      module);
}

// Images are not interpreted, so no variable is known.
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes,
                              CUmodule module, const char* name) {
  return CallInContext(
      Entry::cuModuleGetGlobal_v2,
      [&](Context&) {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return emucuda::Libraries().Find(LibraryOf(module)) != nullptr
                   ? CUDA_ERROR_NOT_FOUND
                   : CUDA_ERROR_INVALID_HANDLE;
      },
      module);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file,
                               CUjit_option* jit_options, void** jit_values,
                               unsigned int jit_count, CUlibraryOption* options,
                               void** values, unsigned int count) {
  return Call(Entry::cuLibraryLoadFromFile, Require::kInit,
              [&] { return LoadFile(file, library); });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return CallInContext(
      Entry::cuLibraryGetModule,
      [&](Context&) {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (emucuda::Libraries().Find(library) == nullptr) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        *module = reinterpret_cast<CUmodule>(library);
        return CUDA_SUCCESS;
      },
      library);
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return CallOnFunction(Entry::cuFuncGetName, function, [&](Kernel& kernel) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = kernel.name().c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                            CUfunction function) {
  return CallOnFunction(
      Entry::cuFuncGetAttribute, function, [&](Kernel& kernel) {
        return value != nullptr && kernel.Attribute(attribute, value)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
      });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                            int value) {
  return CallOnFunction(
      Entry::cuFuncSetAttribute, function, [&](Kernel& kernel) {
        return kernel.SetAttribute(attribute, value) ? CUDA_SUCCESS
                                                     : CUDA_ERROR_INVALID_VALUE;
      });
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

}  // namespace fineserve::driver
