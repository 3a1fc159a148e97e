#include "tools/emucuda/api/stream_handle.h"

#include "tools/emucuda/api/call_frame.h"
#include "tools/emucuda/api/subsystems.h"
#include "tools/emucuda/machine/handle_registry.h"

namespace fineserve::emucuda {

std::shared_ptr<Stream> FindStream(Context& current, CUstream handle) {
  const uint64_t number = reinterpret_cast<uint64_t>(handle);
  if (number == driver::CU_STREAM_PER_THREAD ||
      (number == 0 && PerThreadCall::active())) {
    return current.per_thread_stream();
  }
  if (number == 0 || number == driver::CU_STREAM_LEGACY) {
    return current.default_stream();
  }
  auto stream = Streams().Find(handle);
  return stream != nullptr && stream->context().alive() ? stream : nullptr;
}

}  // namespace fineserve::emucuda
