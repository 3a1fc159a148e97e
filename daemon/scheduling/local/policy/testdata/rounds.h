#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_ROUNDS_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_ROUNDS_H_

namespace fineserve::sched {

// Number of random instances that a property test tries: a tenth under
// sanitizers, which look for other errors and take far longer.
#if defined(FINESERVE_SANITIZED)
inline constexpr int kRounds = 10'000;
#else
inline constexpr int kRounds = 100'000;
#endif

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_ROUNDS_H_
