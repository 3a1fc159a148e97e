#ifndef SHIM_HOST_PLAIN_MUTEX_H_
#define SHIM_HOST_PLAIN_MUTEX_H_

// A mutex that clang's thread-safety analysis understands and that cannot
// throw: std::mutex::lock may, and the shim is built without exceptions.

#include <pthread.h>

#if defined(__clang__)
#define FINESERVE_ANNOTATE(x) __attribute__((x))
#else
#define FINESERVE_ANNOTATE(x)
#endif
#define FINESERVE_GUARDED_BY(m) FINESERVE_ANNOTATE(guarded_by(m))
#define FINESERVE_TRY_ACQUIRE(x) FINESERVE_ANNOTATE(try_acquire_capability(x))
#define FINESERVE_REQUIRES(...) \
  FINESERVE_ANNOTATE(requires_capability(__VA_ARGS__))

namespace fineserve::shim {

// Constant-initialised and trivially destroyed, so that a global holding one
// works before the first constructor and after the last destructor.
class FINESERVE_ANNOTATE(capability("mutex")) Mutex {
 public:
  constexpr Mutex() = default;
  void Lock() FINESERVE_ANNOTATE(acquire_capability()) {
    pthread_mutex_lock(&mutex_);
  }
  // Returns false at once if another thread holds it.
  bool TryLock() FINESERVE_TRY_ACQUIRE(true) {
    return pthread_mutex_trylock(&mutex_) == 0;
  }
  void Unlock() FINESERVE_ANNOTATE(release_capability()) {
    pthread_mutex_unlock(&mutex_);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

template <typename M>
class FINESERVE_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(M* mutex) FINESERVE_ANNOTATE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() FINESERVE_ANNOTATE(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  M* const mutex_;
};

}  // namespace fineserve::shim

#endif  // SHIM_HOST_PLAIN_MUTEX_H_
