#ifndef TOOLS_LAB_DEVICE_MACHINE_ANNOTATED_MUTEX_H_
#define TOOLS_LAB_DEVICE_MACHINE_ANNOTATED_MUTEX_H_

// A std::mutex and condition variable that clang's thread-safety analysis
// understands. Abseil is not an option here, because other programs dlopen
// libcuda.so.1.

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define EMUCUDA_ANNOTATE(x) __attribute__((x))
#else
#define EMUCUDA_ANNOTATE(x)
#endif
#define EMUCUDA_GUARDED_BY(mutex) EMUCUDA_ANNOTATE(guarded_by(mutex))
#define EMUCUDA_REQUIRES(...) EMUCUDA_ANNOTATE(requires_capability(__VA_ARGS__))
#define EMUCUDA_EXCLUDES(...) EMUCUDA_ANNOTATE(locks_excluded(__VA_ARGS__))
#define EMUCUDA_NO_ANALYSIS EMUCUDA_ANNOTATE(no_thread_safety_analysis)

namespace fineserve::emucuda {

class EMUCUDA_ANNOTATE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  // No thread holds the mutex at this point. Locking it once more shows this to
  // ThreadSanitizer in the host program, which cannot see the reference counts
  // of this uninstrumented library.
  ~Mutex() {
    mutex_.lock();
    mutex_.unlock();
  }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() EMUCUDA_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void Unlock() EMUCUDA_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class EMUCUDA_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) EMUCUDA_ANNOTATE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() EMUCUDA_ANNOTATE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class Condition {
 public:
  void Wait(Mutex& mutex) EMUCUDA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    condition_.wait(held);
    held.release();  // the caller's MutexLock still owns it
  }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_ANNOTATED_MUTEX_H_
