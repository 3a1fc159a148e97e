#ifndef SHIM_VIEW_VIEW_FORMAT_H_
#define SHIM_VIEW_VIEW_FORMAT_H_

// Turns the format that an engine registers into the shape of its view. Pure. A
// function whose result is an int returns FS_OK, or an FS_… error with its text
// set (kv_error.h).

#include <cstdint>

#include "daemon/contract/abi/messages.h"
#include "shim/fineserve_kv.h"
#include "shim/link/daemon_link.h"
#include "shim/map/view_mapping.h"

namespace fineserve::shim {

int CheckFormat(const fs_kv_format& format);

// Returns the request that registers a format that passed CheckFormat.
abi::ViewRequest RequestFor(const fs_kv_format& format);

// Computes the shape of the tensors on the daemon's pool and on this driver,
// whose granularity is in bytes.
int ShapeFor(const fs_kv_format& format, const ViewGrant& grant,
             uint64_t granularity, ViewShape* out);

// Returns the number of usable blocks in the slab that has the fewest.
uint64_t LeastBlocks(const ViewShape& shape);

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_VIEW_FORMAT_H_
