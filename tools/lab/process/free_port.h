#ifndef TOOLS_LAB_PROCESS_FREE_PORT_H_
#define TOOLS_LAB_PROCESS_FREE_PORT_H_

#include <cstdint>

namespace fineserve::process {

// Returns a TCP port of 127.0.0.1 for a server that cannot choose one itself.
// No process listens on it, no other process gets it from this function while
// this one lives, and no outgoing connection gets it, because it is outside the
// range that the kernel uses for those. Exits if there is none. Not
// thread-safe.
uint16_t FreePort();
// The first of `count` such ports in a row.
uint16_t FreePorts(int count);

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_FREE_PORT_H_
