#ifndef TESTS_INTEGRATION_FREE_PORT_H_
#define TESTS_INTEGRATION_FREE_PORT_H_

#include <cstdint>

namespace fineserve::integration {

// A port that nobody listens on; whoever gets it must bind it soon.
uint16_t FreePort();

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_FREE_PORT_H_
