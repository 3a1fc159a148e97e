// A stock engine on the CUDA runtime API, as nvcc compiles one: weights, a KV
// cache that it writes and verifies, a kernel. It knows nothing of FineServe.
//
//   runtime_engine KV_BYTES
//
// Prints "kv ADDRESS zero: yes|no", then "ready" once the data is verified,
// and ends at the end of stdin. Exit codes: 0; 1 with the CUDA error on stderr.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kWeightBytes = 8 << 20;

__global__ void Scale(float* values, int count, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= by;
}

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "runtime_engine: %s: %s (%d)\n", call,
          cudaGetErrorString(error), static_cast<int>(error));
  exit(1);
}
#define CHECK(call) Check(call, #call)

template <typename T>
T* Allocate(size_t bytes) {
  void* address = nullptr;
  CHECK(cudaMalloc(&address, bytes));
  return static_cast<T*>(address);
}

std::vector<unsigned char> ReadBack(const unsigned char* kv, size_t bytes) {
  std::vector<unsigned char> host(bytes);
  CHECK(cudaMemcpy(host.data(), kv, bytes, cudaMemcpyDeviceToHost));
  return host;
}

// Writes a pattern through a stream and reads it back.
bool Verify(unsigned char* kv, size_t bytes) {
  std::vector<unsigned char> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<unsigned char>(i * 31 + (i >> 12));
  }
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpyAsync(kv, pattern.data(), bytes, cudaMemcpyHostToDevice,
                        stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
  return ReadBack(kv, bytes) == pattern;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t kv_bytes = argc == 2 ? strtoull(argv[1], nullptr, 10) : 0;
  if (kv_bytes == 0) {
    fprintf(stderr, "usage: runtime_engine KV_BYTES\n");
    return 2;
  }
  float* const weights = Allocate<float>(kWeightBytes);
  Scale<<<64, 256>>>(weights, 64 * 256, 2.0f);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());

  auto* const kv = Allocate<unsigned char>(kv_bytes);
  const auto before = ReadBack(kv, kv_bytes);
  const bool zero = std::all_of(before.begin(), before.end(),
                                [](unsigned char byte) { return byte == 0; });
  printf("kv %p zero: %s\n", static_cast<void*>(kv), zero ? "yes" : "no");
  if (!Verify(kv, kv_bytes)) {
    fprintf(stderr, "runtime_engine: the KV cache does not hold its data\n");
    return 1;
  }
  printf("ready\n");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  CHECK(cudaFree(kv));
  CHECK(cudaFree(weights));
  return 0;
}
