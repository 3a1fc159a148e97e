#ifndef DAEMON_BACKING_BACKING_FIXTURE_H_
#define DAEMON_BACKING_BACKING_FIXTURE_H_

#include "daemon/slab/pool_geometry.h"

namespace fineserve::backing {

// The pool of this folder's tests: 8 slabs of two granules.
inline constexpr slab::PoolGeometry kGeometry = {4096, 2, 8};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_BACKING_FIXTURE_H_
