#ifndef TOOLS_LAB_PROCESS_RANDOM_SEED_H_
#define TOOLS_LAB_PROCESS_RANDOM_SEED_H_

#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>

namespace fineserve::process {

// Returns a different seed in each run. std::random_device would need
// glibc 2.36, which machines that run a bundle may not have.
inline unsigned RandomSeed() {
  unsigned seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) abort();
  return seed;
}

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_RANDOM_SEED_H_
