#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_POLICY_NAMES_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_POLICY_NAMES_H_

namespace fineserve::plan {

// The names of all placement policies, as plan::MakePolicy knows them, for
// code that reads such a name and does not plan.
inline constexpr const char* kPolicyNames[] = {
    "fineserve", "prism",           "dedicated",     "prism-mended",
    "prism-opt", "fineserve-exact", "fineserve-opt",
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_POLICY_NAMES_H_
