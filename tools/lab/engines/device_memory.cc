#include "tools/lab/engines/device_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/lab/engines/kv_pattern.h"

namespace stock_engine {
namespace {

constexpr size_t kChunkBytes = 4 << 20;

// Returns the offset of the first word that differs in two buffers of `bytes`
// bytes; else `bytes`.
size_t FirstDifference(const char* a, const char* b, size_t bytes) {
  if (memcmp(a, b, bytes) == 0) return bytes;
  size_t at = 0;
  while (memcmp(a + at, b + at, std::min<size_t>(8, bytes - at)) == 0) at += 8;
  return at;
}

uint64_t WordAt(const char* from, size_t bytes_left) {
  uint64_t word = 0;
  memcpy(&word, from, std::min<size_t>(8, bytes_left));
  return word;
}

}  // namespace

const char* ErrorName(CUresult result) {
  const char* name = nullptr;
  fineserve::driver::cuGetErrorName(result, &name);
  return name != nullptr ? name : "CUDA_ERROR_(unnamed)";
}

void CheckCuda(CUresult result, const char* function) {
  if (result == fineserve::driver::CUDA_SUCCESS) return;
  printf("error %s %s\n", function, ErrorName(result));
  fprintf(stderr, "stock_engine: %s: %s\n", function, ErrorName(result));
  exit(kExitCudaError);
}

std::string Mismatch::Text() const {
  char text[160];
  snprintf(text, sizeof(text),
           "%s offset=%" PRIu64 " wanted=0x%016" PRIx64 " got=0x%016" PRIx64,
           range.c_str(), offset, wanted, got);
  return text;
}

Copier::Copier() {
  STOCK_ENGINE_CALL(cuStreamCreate, &stream_,
                    fineserve::driver::CU_STREAM_NON_BLOCKING);
  for (Buffer& buffer : buffers_) {
    void* host = nullptr;
    STOCK_ENGINE_CALL(cuMemHostAlloc, &host, kChunkBytes, 0);
    buffer.host = static_cast<char*>(host);
    STOCK_ENGINE_CALL(cuEventCreate, &buffer.done,
                      fineserve::driver::CU_EVENT_DISABLE_TIMING);
  }
}

Copier::~Copier() {
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
  for (Buffer& buffer : buffers_) {
    STOCK_ENGINE_CALL(cuEventDestroy_v2, buffer.done);
    STOCK_ENGINE_CALL(cuMemFreeHost, buffer.host);
  }
  STOCK_ENGINE_CALL(cuStreamDestroy_v2, stream_);
}

void Copier::Write(const Range& range, uint64_t seed) {
  int turn = 0;
  for (uint64_t offset = 0; offset < range.bytes; offset += kChunkBytes) {
    Buffer& buffer = buffers_[turn ^= 1];
    const size_t bytes = std::min<size_t>(kChunkBytes, range.bytes - offset);
    // The copy before the previous one may still be reading this buffer.
    STOCK_ENGINE_CALL(cuEventSynchronize, buffer.done);
    FillPattern(seed, range.number, offset, buffer.host, bytes);
    STOCK_ENGINE_CALL(cuMemcpyHtoDAsync_v2, range.address + offset, buffer.host,
                      bytes, stream_);
    STOCK_ENGINE_CALL(cuEventRecord, buffer.done, stream_);
  }
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

void Copier::Read(const Range& range, uint64_t offset, size_t bytes) {
  // If the copy never runs, the buffer must not look right by chance.
  memset(buffers_[0].host, 0xcd, bytes);
  STOCK_ENGINE_CALL(cuMemcpyDtoHAsync_v2, buffers_[0].host,
                    range.address + offset, bytes, stream_);
  STOCK_ENGINE_CALL(cuStreamSynchronize, stream_);
}

template <typename Expect>
Mismatch Copier::Compare(const Range& range, Expect expect) {
  std::vector<char> wanted(std::min(kChunkBytes, range.bytes));
  for (uint64_t offset = 0; offset < range.bytes; offset += kChunkBytes) {
    const size_t bytes = std::min<size_t>(kChunkBytes, range.bytes - offset);
    Read(range, offset, bytes);
    expect(offset, wanted.data(), bytes);
    const char* got = buffers_[0].host;
    const size_t at = FirstDifference(wanted.data(), got, bytes);
    if (at == bytes) continue;
    return {true, range.name, offset + at, WordAt(&wanted[at], bytes - at),
            WordAt(got + at, bytes - at)};
  }
  return {};
}

Mismatch Copier::Verify(const Range& range, uint64_t seed) {
  return Compare(range, [&](uint64_t offset, char* wanted, size_t bytes) {
    FillPattern(seed, range.number, offset, wanted, bytes);
  });
}

Mismatch Copier::FindNonZero(const Range& range) {
  return Compare(range, [](uint64_t, char* wanted, size_t bytes) {
    memset(wanted, 0, bytes);
  });
}

}  // namespace stock_engine
