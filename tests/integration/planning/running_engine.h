#ifndef TESTS_INTEGRATION_PLANNING_RUNNING_ENGINE_H_
#define TESTS_INTEGRATION_PLANNING_RUNNING_ENGINE_H_

#include <sys/types.h>

#include <cstdint>

namespace fineserve::integration {

// Returns the tinyserve on this machine that was started with --port `port`,
// whatever its parent is; 0 if there is none.
pid_t TinyserveOn(uint16_t port);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PLANNING_RUNNING_ENGINE_H_
