#ifndef TOOLS_EMUCUDA_STREAM_WORKER_THREAD_H_
#define TOOLS_EMUCUDA_STREAM_WORKER_THREAD_H_

#include <functional>

namespace fineserve::emucuda {

// Runs `body` on a detached thread that receives no signals, because handlers
// belong to the host program. Returns false if no thread can be started
// (std::thread would throw).
bool StartDetached(std::function<void()> body);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_WORKER_THREAD_H_
