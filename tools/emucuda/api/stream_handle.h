#ifndef TOOLS_EMUCUDA_API_STREAM_HANDLE_H_
#define TOOLS_EMUCUDA_API_STREAM_HANDLE_H_

#include <memory>

#include "tools/emucuda/stream/context.h"

namespace fineserve::emucuda {

// Finds the stream behind a handle: 0 is the current context's default stream
// or, in a per-thread variant, the calling thread's own. Returns null if there
// is none, or if its context is gone.
std::shared_ptr<Stream> FindStream(Context& current, CUstream handle);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_STREAM_HANDLE_H_
