#ifndef SHIM_HOST_OWN_THREAD_H_
#define SHIM_HOST_OWN_THREAD_H_

namespace fineserve::shim {

// Starts a detached thread of ours, which takes no signal of the host. False if
// the system refuses.
bool StartOwnThread(void* (*run)(void*), void* argument);

}  // namespace fineserve::shim

#endif  // SHIM_HOST_OWN_THREAD_H_
