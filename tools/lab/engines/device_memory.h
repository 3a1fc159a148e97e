#ifndef TOOLS_LAB_ENGINES_DEVICE_MEMORY_H_
#define TOOLS_LAB_ENGINES_DEVICE_MEMORY_H_

// Device memory as an engine uses it: ranges that are written and read in
// chunks by asynchronous copies on one stream.

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/driver/prototypes.h"

namespace stock_engine {

using fineserve::driver::CUdeviceptr;
using fineserve::driver::CUevent;
using fineserve::driver::CUresult;
using fineserve::driver::CUstream;

inline constexpr int kExitMismatch = 1;
inline constexpr int kExitCudaError = 3;
inline constexpr int kExitNoKvMemory = 4;

const char* ErrorName(CUresult result);

// Unless `result` is success, prints "error <function> <error name>" on stdout
// and stderr, and exits with kExitCudaError.
void CheckCuda(CUresult result, const char* function);

#define STOCK_ENGINE_CALL(function, ...)                                \
  ::stock_engine::CheckCuda(::fineserve::driver::function(__VA_ARGS__), \
                            #function)

// A piece of device memory, with a name for reports of mismatches.
struct Range {
  std::string name;  // "layer=3", "weights=0"
  uint64_t number;   // goes into the pattern: unique among ranges
  CUdeviceptr address;
  size_t bytes;
};

// The first wrong word of a range.
struct Mismatch {
  bool found = false;
  std::string range;
  uint64_t offset = 0;
  uint64_t wanted = 0;
  uint64_t got = 0;

  // "layer=3 offset=64 wanted=0x… got=0x…".
  std::string Text() const;
};

// One stream and two pinned staging buffers. Needs a current context, which
// must outlive it. Not thread-safe.
class Copier {
 public:
  Copier();
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Writes the pattern of `seed`; returns when the device has it.
  void Write(const Range& range, uint64_t seed);

  // Reads the range back and compares it with the pattern of `seed`.
  Mismatch Verify(const Range& range, uint64_t seed);

  // Reads the range back and looks for a byte that is not zero.
  Mismatch FindNonZero(const Range& range);

 private:
  struct Buffer {
    char* host = nullptr;
    CUevent done = nullptr;  // the last copy out of `host`
  };

  template <typename Expect>
  Mismatch Compare(const Range& range, Expect expect);
  void Read(const Range& range, uint64_t offset, size_t bytes);

  CUstream stream_ = nullptr;
  Buffer buffers_[2];
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_DEVICE_MEMORY_H_
