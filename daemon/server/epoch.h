#ifndef DAEMON_SERVER_EPOCH_H_
#define DAEMON_SERVER_EPOCH_H_

#include <cstdint>

namespace fineserve::server {

// A number that tells one life of a table or service from every other; not 0.
uint64_t RandomEpoch();

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_EPOCH_H_
