#ifndef DAEMON_BASE_FILE_LOCK_H_
#define DAEMON_BASE_FILE_LOCK_H_

#include "absl/time/time.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::base {

// Takes flock's exclusive lock, retrying until `patience` is over, because a
// killed holder may take long to exit on a busy machine. Returns false if
// another holder still has the lock. The kernel releases the lock when the
// process ends.
bool LockWithin(const driver::Descriptor& file, absl::Duration patience);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_FILE_LOCK_H_
