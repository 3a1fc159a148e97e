#ifndef TOOLS_EMUCUDA_API_STREAM_HANDLE_H_
#define TOOLS_EMUCUDA_API_STREAM_HANDLE_H_

#include <memory>

#include "tools/emucuda/api/call_frame.h"
#include "tools/emucuda/api/driver_state.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/stream/context.h"

namespace fineserve::emucuda {

// Stream priorities are hints, as on a device of NVIDIA's: lower is more
// urgent.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

// The stream behind a handle: 0 is the current context's default stream or, in
// a per-thread variant, the calling thread's own. Null if there is none, or if
// its context is gone.
inline std::shared_ptr<Stream> FindStream(Context& current, CUstream handle) {
  const uint64_t number = reinterpret_cast<uint64_t>(handle);
  if (number == driver::CU_STREAM_PER_THREAD ||
      (number == 0 && PerThreadCall::active())) {
    return current.per_thread_stream();
  }
  if (number == 0 || number == driver::CU_STREAM_LEGACY) {
    return current.default_stream();
  }
  auto stream = Driver::Get().streams().Find(handle);
  return stream != nullptr && stream->context().alive() ? stream : nullptr;
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_STREAM_HANDLE_H_
