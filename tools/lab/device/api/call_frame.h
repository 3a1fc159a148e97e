#ifndef TOOLS_LAB_DEVICE_API_CALL_FRAME_H_
#define TOOLS_LAB_DEVICE_API_CALL_FRAME_H_

// The frame around every exported driver function: count, latency, injected
// failure, preconditions, body, log.

#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include "tools/lab/device/call/entry.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/stream/current_context.h"

namespace fineserve::emucuda {

enum class Require {
  kNothing,  // works before cuInit
  kInit,     // cuInit; works beside a dead context
  kHealthy,  // cuInit; a current context, if any, must not be dead
  kContext,  // cuInit and a current context that is not dead
};

// The per-thread variant through which this thread entered a plain function, if
// any. If there is one, the variant is counted and logged, and stream 0 means
// the thread's own stream. Confined to one thread.
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

// The arguments of a call, as the log shows them.
template <typename... Args>
std::array<uint64_t, sizeof...(Args)> Logged(Args... args) {
  return {LogWord(args)...};
}

// Runs `body` unless BeginCall forbids it. Catches memory exhaustion inside the
// emulator, because no exception may leave the library.
template <typename Body>
CUresult Call(Entry plain, Require require, std::span<const uint64_t> logged,
              Body&& body) {
  const Entry entry = PerThreadCall::EntryOf(plain);
  CUresult result;
  try {
    result = BeginCall(entry, require);
    if (result == CUDA_SUCCESS) result = body();
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  LogCall(entry, logged, result);
  return result;
}

template <typename Body>
CUresult Call(Entry entry, Require require, Body&& body) {
  return Call(entry, require, {}, body);
}

// Runs `body(context)`, for a function that works in the current context.
template <typename Body>
CUresult CallInContext(Entry entry, std::span<const uint64_t> logged,
                       Body&& body) {
  return Call(entry, Require::kContext, logged,
              [&] { return body(*CurrentContext()); });
}

template <typename Body>
CUresult CallInContext(Entry entry, Body&& body) {
  return CallInContext(entry, {}, body);
}

// Runs `body(context, args...)`, for a function that logs all its arguments.
template <typename... Args>
CUresult ForwardInContext(Entry entry, CUresult (*body)(Context&, Args...),
                          std::type_identity_t<Args>... args) {
  return CallInContext(entry, Logged(args...), [&](Context& context) {
    return body(context, args...);
  });
}

// Returns INVALID_DEVICE unless this process sees a device with that ordinal.
CUresult CheckDevice(CUdevice ordinal);

// Runs `body()` if the device exists, with or without a context.
template <typename Body>
CUresult CallOnDevice(Entry entry, CUdevice device, Body&& body) {
  const auto checked = [&] {
    const CUresult result = CheckDevice(device);
    return result == CUDA_SUCCESS ? body() : result;
  };
  return Call(entry, Require::kInit, Logged(device), checked);
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_CALL_FRAME_H_
