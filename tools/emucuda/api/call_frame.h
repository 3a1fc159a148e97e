#ifndef TOOLS_EMUCUDA_API_CALL_FRAME_H_
#define TOOLS_EMUCUDA_API_CALL_FRAME_H_

// The frame around every exported driver function: count, latency, injected
// failure, preconditions, body, log.

#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include "tools/emucuda/api/driver_state.h"
#include "tools/emucuda/call/entry.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/stream/context.h"

namespace fineserve::emucuda {

enum class Require {
  kNothing,  // works before cuInit
  kInit,     // cuInit; works beside a dead context
  kHealthy,  // cuInit; a current context, if any, must not be dead
  kContext,  // cuInit and a current context that is not dead
};

// The variant through which this thread came into a plain function, if any:
// it is what is counted and logged, and stream 0 is then the thread's own.
// Confined to one thread.
class PerThreadCall {
 public:
  explicit PerThreadCall(Entry variant) { current_ = variant; }
  ~PerThreadCall() { current_ = kNone; }
  PerThreadCall(const PerThreadCall&) = delete;
  PerThreadCall& operator=(const PerThreadCall&) = delete;

  static bool active() { return current_ != kNone; }
  static Entry EntryOf(Entry plain) { return active() ? current_ : plain; }

 private:
  static constexpr Entry kNone = static_cast<Entry>(-1);
  static constinit thread_local Entry current_;
};

// Counts the call and decides whether its body may run.
CUresult BeginCall(Entry entry, Require require);

void LogCall(Entry entry, std::span<const uint64_t> args, CUresult result);

template <typename T>
uint64_t LogWord(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

// Runs `body` unless something forbids it; `args` are for the log. Memory
// exhaustion inside the emulator ends here: no exception leaves the library.
template <typename Body, typename... Args>
CUresult Call(Entry plain, Require require, Body&& body, Args... args) {
  const Entry entry = PerThreadCall::EntryOf(plain);
  CUresult result;
  try {
    result = BeginCall(entry, require);
    if (result == CUDA_SUCCESS) result = body();
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::array<uint64_t, sizeof...(Args)> words = {LogWord(args)...};
  LogCall(entry, words, result);
  return result;
}

// Ditto, for functions that work in the current context.
template <typename Body, typename... Args>
CUresult CallInContext(Entry entry, Body&& body, Args... args) {
  return Call(
      entry, Require::kContext, [&] { return body(*CurrentContext()); },
      args...);
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_CALL_FRAME_H_
