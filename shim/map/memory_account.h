#ifndef SHIM_MAP_MEMORY_ACCOUNT_H_
#define SHIM_MAP_MEMORY_ACCOUNT_H_

#include <cstddef>

#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"

namespace fineserve::shim {

// Says which process holds the memory of the current context's device, which is
// the link's, in a part of a sentence:
//
//   "of 80 GiB on the device 64 MiB are free, the pool has 70 GiB (vllm-a
//   30 GiB, vllm-b 20 GiB, 20 GiB not leased), 9.9 GiB are elsewhere (weights,
//   activations, contexts, other programs)"
//
// Writes at most `room` bytes, NUL included; engines for which there is no room
// are counted. False if there is nothing to say: the process has met no daemon,
// another thread is asking it something, or the driver does not answer.
bool DescribeMemory(const driver::EntryPoints& entry, DaemonLink* link,
                    char* out, size_t room);

}  // namespace fineserve::shim

#endif  // SHIM_MAP_MEMORY_ACCOUNT_H_
