#ifndef TOOLS_LAB_DEVICE_CUDART_REGISTERED_CODE_H_
#define TOOLS_LAB_DEVICE_CUDART_REGISTERED_CODE_H_

// The code that nvcc's host code registers: fat binaries, and the kernel or
// variable in them that each host symbol refers to. A binary goes to the driver
// when the first of its symbols is used, as with CUDA_MODULE_LOADING=LAZY. Any
// thread may call these functions.

#include <cstddef>

#include "tools/lab/device/cudart/error.h"

namespace fineserve::cudart {

struct Binary;  // one registered fat binary

// `wrapper` is the structure that nvcc generates (fatbinary_section.h: magic,
// version, image, files).
Binary* AddBinary(const void* wrapper);
// Forgets the binary and its symbols, and unloads it if it was loaded.
void RemoveBinary(Binary* binary);

// Names must live as long as the binary.
void AddKernel(Binary* binary, const void* host_function, const char* name);
void AddVariable(Binary* binary, const void* host_variable, const char* name,
                 size_t bytes);

// Finds the driver's kernel behind a host function. Returns
// InvalidDeviceFunction if the function is not registered, else the result of
// loading the kernel.
cudaError_t FindKernel(const void* host_function, cudaKernel_t* kernel);
cudaError_t KernelName(const void* host_function, const char** name);

// Remembers a kernel of a library that the program itself loaded. The program
// may launch it by handle instead of by host function.
void AddLibraryKernel(cudaKernel_t kernel);
bool IsLibraryKernel(cudaKernel_t kernel);

struct Variable {
  void* address;
  size_t bytes;
};
// Returns InvalidSymbol if the variable is not registered, else the result of
// loading it.
cudaError_t FindVariable(const void* host_variable, Variable* variable);
// Finds only the variable's size, which needs no driver.
cudaError_t VariableBytes(const void* host_variable, size_t* bytes);

// Unloads every binary, at exit.
void UnloadBinaries();

}  // namespace fineserve::cudart

#endif  // TOOLS_LAB_DEVICE_CUDART_REGISTERED_CODE_H_
