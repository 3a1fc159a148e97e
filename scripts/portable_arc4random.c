/* libstdc++'s std::random_device calls arc4random where glibc has it: from 2.36
 * on, newer than a bundle may ask for (portable.cmake). This one serves
 * instead. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) abort();
  return value;
}
