#ifndef TOOLS_EMUCUDA_CUDART_REGISTERED_CODE_H_
#define TOOLS_EMUCUDA_CUDART_REGISTERED_CODE_H_

// What nvcc's host code registers: fat binaries, and which host symbol stands
// for which kernel or variable in them. A binary is handed to the driver when
// the first of its symbols is used (as with CUDA_MODULE_LOADING=LAZY). All
// functions: any thread.

#include "tools/emucuda/cudart/error.h"

namespace fineserve::cudart {

struct Binary;  // one registered fat binary

// `wrapper` is nvcc's (fatbinary_section.h: magic, version, image, files).
Binary* AddBinary(const void* wrapper);
// Forgets the binary and its symbols, and unloads it if it was loaded.
void RemoveBinary(Binary* binary);

// Names must live as long as the binary.
void AddKernel(Binary* binary, const void* host_function, const char* name);
void AddVariable(Binary* binary, const void* host_variable, const char* name,
                 size_t bytes);

// The driver's kernel behind a host function. Errors: InvalidDeviceFunction if
// nobody registered it, else what loading it said.
cudaError_t FindKernel(const void* host_function, cudaKernel_t* kernel);
cudaError_t KernelName(const void* host_function, const char** name);

// Kernels of libraries that the program loaded by itself: it may launch them by
// their handle in place of a host function.
void AddLibraryKernel(cudaKernel_t kernel);
bool IsLibraryKernel(cudaKernel_t kernel);

struct Variable {
  void* address;
  size_t bytes;
};
// Error: InvalidSymbol if nobody registered it, else what loading it said.
cudaError_t FindVariable(const void* host_variable, Variable* variable);
// The size alone, which needs no driver.
cudaError_t VariableBytes(const void* host_variable, size_t* bytes);

// At exit: unloads every binary.
void UnloadBinaries();

}  // namespace fineserve::cudart

#endif  // TOOLS_EMUCUDA_CUDART_REGISTERED_CODE_H_
