#ifndef TOOLS_LAB_PROCESS_FROM_ENVIRONMENT_H_
#define TOOLS_LAB_PROCESS_FROM_ENVIRONMENT_H_

#include <cstdlib>

namespace fineserve::process {

// Returns the number in the environment variable `name`, with which one can
// make a test or a bench run longer; `otherwise` if it is not set.
inline int FromEnvironment(const char* name, int otherwise) {
  const char* value = getenv(name);
  return value == nullptr ? otherwise : atoi(value);
}

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_FROM_ENVIRONMENT_H_
