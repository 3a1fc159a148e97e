#ifndef TESTS_PROCESS_FREE_PORT_H_
#define TESTS_PROCESS_FREE_PORT_H_

#include <cstdint>

namespace fineserve::process {

// A TCP port of 127.0.0.1 for a server that cannot choose one itself. Nobody
// listens on it; no other process that asks here gets it while this one lives;
// and no outgoing connection does, as it lies outside the range from which the
// kernel takes those. Ends this process if there is none. Not thread-safe.
uint16_t FreePort();

}  // namespace fineserve::process

#endif  // TESTS_PROCESS_FREE_PORT_H_
