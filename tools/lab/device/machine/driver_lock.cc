#include "tools/lab/device/machine/driver_lock.h"

#include <fcntl.h>

#include "tools/lab/device/machine/range_locks.h"

namespace fineserve::emucuda {
namespace {

constexpr ByteRange kWhole = {0, 1};

}  // namespace

bool DriverLock::Share(const std::string& folder) {
  file_ = Descriptor(open((folder + "/driver-lock").c_str(),
                          O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  is_shared_.store(file_.valid(), std::memory_order_release);
  return file_.valid();
}

DriverLock::Held::Held(DriverLock* lock) : lock_(lock) {
  lock_->mutex_.Lock();
  if (lock_->is_shared()) WriteLock(lock_->file_.get(), kWhole);
}

DriverLock::Held::~Held() {
  if (lock_->is_shared()) Unlock(lock_->file_.get(), kWhole);
  lock_->mutex_.Unlock();
}

void TakeDriverLock(int descriptor) { WriteLock(descriptor, kWhole); }

}  // namespace fineserve::emucuda
