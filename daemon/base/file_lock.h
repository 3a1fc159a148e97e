#ifndef DAEMON_BASE_FILE_LOCK_H_
#define DAEMON_BASE_FILE_LOCK_H_

#include "absl/time/time.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::base {

// Takes flock's exclusive lock, and tries again until `patience` is over: a
// holder that was killed may take long to end on a busy machine. False if
// another one still holds it. The kernel releases the lock with the process.
bool LockWithin(const driver::Descriptor& file, absl::Duration patience);

}  // namespace fineserve::base

#endif  // DAEMON_BASE_FILE_LOCK_H_
