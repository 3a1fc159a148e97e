// Exported functions: libraries and modules. Here a CUmodule is a CUlibrary,
// and a CUfunction is a CUkernel.

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"
#include "tools/lab/device/kernel/code_image.h"
#include "tools/lab/device/kernel/library.h"

namespace fineserve::driver {

using emucuda::Call;
using emucuda::CallInContext;
using emucuda::Context;
using emucuda::Entry;
using emucuda::Libraries;
using emucuda::Library;
using emucuda::Logged;
using emucuda::Require;

namespace {

CUlibrary LibraryOf(CUmodule module) {
  return reinterpret_cast<CUlibrary>(module);
}

CUresult LoadImage(const void* image, CUlibrary* library) {
  if (library == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!emucuda::LooksLikeCode(image)) return CUDA_ERROR_INVALID_IMAGE;
  *library = Libraries().Add(std::make_shared<Library>());
  return CUDA_SUCCESS;
}

CUresult LoadFile(const char* path, CUlibrary* library) {
  if (path == nullptr || library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  // The extra byte terminates text.
  char start[emucuda::kCodeHeaderBytes + 1] = {};
  file.read(start, emucuda::kCodeHeaderBytes);
  return LoadImage(start, library);
}

CUresult LoadModule(Entry entry, const void* image, CUmodule* module) {
  return CallInContext(entry, [&](Context&) {
    return LoadImage(image, reinterpret_cast<CUlibrary*>(module));
  });
}

CUresult Unload(CUlibrary library) {
  return Libraries().Remove(library) != nullptr ? CUDA_SUCCESS
                                                : CUDA_ERROR_INVALID_HANDLE;
}

CUresult FindKernel(CUlibrary library, const char* name, CUkernel* kernel) {
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Libraries().Find(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *kernel = found->FindKernel(name);
  return CUDA_SUCCESS;
}

// CUDA_MODULE_LOADING=EAGER sets eager loading; the default is lazy.
CUmoduleLoadingMode LoadingMode() {
  const char* mode = getenv("CUDA_MODULE_LOADING");
  return mode != nullptr && strcmp(mode, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                       : CU_MODULE_LAZY_LOADING;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code,
                           CUjit_option* jit_options, void** jit_values,
                           unsigned int jit_count, CUlibraryOption* options,
                           void** values, unsigned int count) {
  return Call(Entry::cuLibraryLoadData, Require::kInit,
              [&] { return LoadImage(code, library); });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file,
                               CUjit_option* jit_options, void** jit_values,
                               unsigned int jit_count, CUlibraryOption* options,
                               void** values, unsigned int count) {
  return Call(Entry::cuLibraryLoadFromFile, Require::kInit,
              [&] { return LoadFile(file, library); });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return Call(Entry::cuLibraryUnload, Require::kInit, Logged(library),
              [&] { return Unload(library); });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library,
                            const char* name) {
  return Call(Entry::cuLibraryGetKernel, Require::kInit, Logged(library),
              [&] { return FindKernel(library, name, kernel); });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return CallInContext(Entry::cuLibraryGetModule, Logged(library),
                       [&](Context&) {
                         if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         if (Libraries().Find(library) == nullptr) {
                           return CUDA_ERROR_INVALID_HANDLE;
                         }
                         *module = reinterpret_cast<CUmodule>(library);
                         return CUDA_SUCCESS;
                       });
}

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  return CallInContext(Entry::cuModuleLoad, [&](Context&) {
    return LoadFile(file, reinterpret_cast<CUlibrary*>(module));
  });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return LoadModule(Entry::cuModuleLoadData, image, module);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image,
                            unsigned int count, CUjit_option* options,
                            void** values) {
  return LoadModule(Entry::cuModuleLoadDataEx, image, module);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return LoadModule(Entry::cuModuleLoadFatBinary, image, module);
}

CUresult cuModuleUnload(CUmodule module) {
  return CallInContext(Entry::cuModuleUnload, Logged(module),
                       [&](Context&) { return Unload(LibraryOf(module)); });
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
      Entry::cuModuleGetFunction, Logged(module), [&](Context&) {
        return FindKernel(LibraryOf(module), name,
                          reinterpret_cast<CUkernel*>(function));
      });
}

// Images are not interpreted, so the driver knows no variables of theirs.
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes,
                              CUmodule module, const char* name) {
  return CallInContext(Entry::cuModuleGetGlobal_v2, Logged(module),
                       [&](Context&) {
                         if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         return Libraries().Find(LibraryOf(module)) != nullptr
                                    ? CUDA_ERROR_NOT_FOUND
                                    : CUDA_ERROR_INVALID_HANDLE;
                       });
}

}  // namespace fineserve::driver
