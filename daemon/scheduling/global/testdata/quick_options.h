#ifndef DAEMON_SCHEDULING_GLOBAL_TESTDATA_QUICK_OPTIONS_H_
#define DAEMON_SCHEDULING_GLOBAL_TESTDATA_QUICK_OPTIONS_H_

#include <string>

#include "daemon/scheduling/global/make_plan.h"

namespace fineserve::plan {

// Returns options for many random clusters: no reasons, no exact best, no
// prices.
inline Options Quick(const std::string& policy) {
  Options options;
  options.policy = policy;
  options.reasons = false;
  options.exact_steps = 0;
  options.priced_gpus = 0;
  options.of_policy.search.repack_tries = 500;  // for time, no claim
  return options;
}

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_TESTDATA_QUICK_OPTIONS_H_
