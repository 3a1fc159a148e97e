#ifndef DAEMON_CONTRACT_ABI_VERSION_H_
#define DAEMON_CONTRACT_ABI_VERSION_H_

#include <cstdint>

namespace fineserve::abi {

// Version of everything that two FineServe binaries share: messages, slab
// table, engine scoreboard, view scoreboard. Any change of a layout or of a
// meaning raises it; two different versions refuse to communicate.
inline constexpr uint32_t kAbiVersion = 11;

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_VERSION_H_
