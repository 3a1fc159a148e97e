#ifndef TESTS_CONFORMANCE_RELAY_H_
#define TESTS_CONFORMANCE_RELAY_H_

#include "kernels/driver/descriptor.h"

namespace fineserve::conformance {

// Carries what a test says in a forked child to the parent, whose test says it
// again: failed expectations, the reason of a skip, recorded properties. So
// reports hold them as if nothing had been forked, even if the child crashed
// later. Made before the fork; Listen, Finish in the child, Replay in the
// parent once the child is gone. The child's own children inherit it.
class Relay {
 public:
  Relay();

  // From now on this process's expectations go to the parent instead of to
  // standard output.
  void Listen();
  // Sends the properties that the running test has recorded.
  static void Finish();
  // Makes them the running test's own.
  void Replay() const;

 private:
  driver::Descriptor log_;  // a memfd; every writer appends
};

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_RELAY_H_
