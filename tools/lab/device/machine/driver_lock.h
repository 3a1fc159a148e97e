#ifndef TOOLS_LAB_DEVICE_MACHINE_DRIVER_LOCK_H_
#define TOOLS_LAB_DEVICE_MACHINE_DRIVER_LOCK_H_

#include <atomic>
#include <string>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"

namespace fineserve::emucuda {

// The lock that a driver call holds while it works. It excludes the threads of
// this process and, once it is shared, every process of the machine on any of
// its devices, like the lock of NVIDIA's resource manager. When a process dies,
// the kernel drops its hold, unless a forked child or the linger helper has its
// descriptor. Thread-safe.
class DriverLock {
 public:
  // Makes the lock exclude other processes of the machine from now on. Returns
  // false if the file "driver-lock" in the machine's folder cannot be opened.
  // Called once.
  bool Share(const std::string& folder);
  // Acquire: pairs with the release in Share.
  bool is_shared() const { return is_shared_.load(std::memory_order_acquire); }
  // The file's; -1 unless it is shared.
  int descriptor() const { return file_.get(); }

  class EMUCUDA_ANNOTATE(scoped_lockable) Held {
   public:
    explicit Held(DriverLock* lock)
        EMUCUDA_ANNOTATE(acquire_capability(lock->mutex_));
    ~Held() EMUCUDA_ANNOTATE(release_capability());
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    DriverLock* const lock_;
  };

 private:
  std::atomic<bool> is_shared_{false};
  Descriptor file_;
  Mutex mutex_;
};

// Waits until no process holds the lock of this descriptor, then takes it until
// the descriptor's last copy is closed.
void TakeDriverLock(int descriptor);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_DRIVER_LOCK_H_
