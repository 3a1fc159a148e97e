#ifndef TESTS_CONFORMANCE_RELAY_H_
#define TESTS_CONFORMANCE_RELAY_H_

#include "kernels/driver/descriptor.h"

namespace fineserve::conformance {

// Carries the results of a test in a forked child to the parent, whose test
// repeats them: failed expectations, the reason of a skip, recorded properties.
// So reports contain them as if nothing had been forked, even if the child
// crashed later. Create it before the fork; call Listen and Finish in the
// child, and Replay in the parent once the child is gone. The child's own
// children inherit it.
class Relay {
 public:
  Relay();

  // From now on, sends this process's results to the parent instead of to
  // standard output.
  void Listen();
  // Sends the properties that the running test has recorded.
  static void Finish();
  // Repeats all results in the running test.
  void Replay() const;

 private:
  driver::Descriptor log_;  // a memfd; every writer appends
};

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_RELAY_H_
