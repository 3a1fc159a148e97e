#ifndef DAEMON_FINESERVED_SERVER_POOL_FIXTURE_H_
#define DAEMON_FINESERVED_SERVER_POOL_FIXTURE_H_

#include <sys/types.h>

#include <cstdint>

namespace fineserve::server {

// The pools of this folder's tests, and the processes that join them.
inline constexpr uint32_t kSlabs = 8;
inline constexpr uid_t kUser = 1000;

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_POOL_FIXTURE_H_
