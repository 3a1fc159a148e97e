#ifndef TOOLS_LAB_PROCESS_FREE_PORT_H_
#define TOOLS_LAB_PROCESS_FREE_PORT_H_

#include <cstdint>

namespace fineserve::process {

// Returns a TCP port of 127.0.0.1 for a server that cannot choose one itself.
// No process listens on it. No other process gets it from this function while
// this process lives. No outgoing connection gets it, because it is outside the
// kernel's range for those. Exits if no port is free. Not thread-safe.
uint16_t FreePort();
// Returns the first of `count` such ports in a row.
uint16_t FreePorts(int count);

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_FREE_PORT_H_
