#include "daemon/fineserved/server/epoch.h"

#include <sys/random.h>

namespace fineserve::server {

uint64_t RandomEpoch() {
  uint64_t epoch = 0;
  while (epoch == 0) {
    if (getrandom(&epoch, sizeof(epoch), 0) != sizeof(epoch)) epoch = 0;
  }
  return epoch;
}

}  // namespace fineserve::server
