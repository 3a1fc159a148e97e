/* CUDA's runtime 11 for the emulated device. Each function jumps to the emulated
 * runtime's function of the same name, so that the stack above the driver is as
 * on a GPU. It has what llama.cpp's CUDA backend calls. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORWARDED(X)              \
  X(__cudaPopCallConfiguration)   \
  X(__cudaPushCallConfiguration)  \
  X(__cudaRegisterFatBinary)      \
  X(__cudaRegisterFatBinaryEnd)   \
  X(__cudaRegisterFunction)       \
  X(__cudaRegisterVar)            \
  X(__cudaUnregisterFatBinary)    \
  X(cudaDeviceCanAccessPeer)      \
  X(cudaDeviceDisablePeerAccess)  \
  X(cudaDeviceEnablePeerAccess)   \
  X(cudaDeviceSynchronize)        \
  X(cudaEventCreateWithFlags)     \
  X(cudaEventDestroy)             \
  X(cudaEventRecord)              \
  X(cudaEventSynchronize)         \
  X(cudaFree)                     \
  X(cudaFreeHost)                 \
  X(cudaFuncSetAttribute)         \
  X(cudaGetDevice)                \
  X(cudaGetDeviceCount)           \
  X(cudaGetErrorString)           \
  X(cudaGetLastError)             \
  X(cudaHostUnregister)           \
  X(cudaLaunchKernel)             \
  X(cudaMalloc)                   \
  X(cudaMallocHost)               \
  X(cudaMemGetInfo)               \
  X(cudaMemcpy2DAsync)            \
  X(cudaMemcpy3DPeerAsync)        \
  X(cudaMemcpyAsync)              \
  X(cudaMemcpyPeerAsync)          \
  X(cudaMemset)                   \
  X(cudaMemsetAsync)              \
  X(cudaSetDevice)                \
  X(cudaStreamCreateWithFlags)    \
  X(cudaStreamDestroy)            \
  X(cudaStreamSynchronize)        \
  X(cudaStreamWaitEvent)

#define JUMP(name)                                         \
  __attribute__((visibility("hidden"))) void* real_##name; \
  __asm__(".pushsection .text\n"                           \
          ".globl " #name "\n"                             \
          ".type " #name ", @function\n" #name ":\n"       \
          "  jmp *real_" #name "(%rip)\n"                  \
          ".size " #name ", .-" #name "\n"                 \
          ".popsection\n");
FORWARDED(JUMP)

static int (*device_get_attribute)(int* value, int attribute, int device);

static void* Real(void* runtime, const char* name) {
  void* function = runtime == NULL ? NULL : dlsym(runtime, name);
  if (function == NULL) {
    fprintf(stderr, "the emulated runtime has no %s: %s\n", name, dlerror());
    abort();
  }
  return function;
}

__attribute__((constructor)) static void Open(void) {
  void* runtime = dlopen("libcudart.so.13", RTLD_NOW);
#define OPEN(name) real_##name = Real(runtime, #name);
  FORWARDED(OPEN)
  *(void**)&device_get_attribute = Real(runtime, "cudaDeviceGetAttribute");
}

/* Fills the fields of CUDA 11's cudaDeviceProp that llama.cpp reads; the others
 * are 0. */
int cudaGetDeviceProperties(char* properties, int device) {
  enum { kBytes = 728 }; /* of cudaDeviceProp */
  static const struct {
    int offset, attribute;
  } kFields[] = {
      {296, 8},  /* sharedMemPerBlock, a size_t */
      {308, 10}, /* warpSize */
      {320, 1},  /* maxThreadsPerBlock */
      {360, 75}, /* major */
      {364, 76}, /* minor */
      {388, 16}, /* multiProcessorCount */
  };
  memset(properties, 0, kBytes);
  strcpy(properties, "emulated");
  for (size_t i = 0; i < sizeof(kFields) / sizeof(*kFields); ++i) {
    int value = 0;
    const int failed =
        device_get_attribute(&value, kFields[i].attribute, device);
    if (failed != 0) return failed;
    memcpy(properties + kFields[i].offset, &value, sizeof(value));
  }
  return 0;
}
