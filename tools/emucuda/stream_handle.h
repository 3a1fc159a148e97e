#ifndef TOOLS_EMUCUDA_STREAM_HANDLE_H_
#define TOOLS_EMUCUDA_STREAM_HANDLE_H_

#include <memory>

#include "tools/emucuda/context.h"
#include "tools/emucuda/driver.h"
#include "tools/emucuda/driver_types.h"

namespace fineserve::emucuda {

// The stream behind a handle: null and CU_STREAM_LEGACY (1) are the current
// context's default stream, and so is CU_STREAM_PER_THREAD (2), since the
// emulator has no per-thread streams. Null if there is none, or if its context
// is gone.
inline std::shared_ptr<Stream> FindStream(Context& current, CUstream handle) {
  if (reinterpret_cast<uint64_t>(handle) <= 2) return current.default_stream();
  auto stream = Driver::Get().streams().Find(handle);
  return stream != nullptr && stream->context().alive() ? stream : nullptr;
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_HANDLE_H_
