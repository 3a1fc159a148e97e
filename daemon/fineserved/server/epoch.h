#ifndef DAEMON_FINESERVED_SERVER_EPOCH_H_
#define DAEMON_FINESERVED_SERVER_EPOCH_H_

#include <cstdint>

namespace fineserve::server {

// Returns a random number that identifies one lifetime of a table or service;
// never 0.
uint64_t RandomEpoch();

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_EPOCH_H_
