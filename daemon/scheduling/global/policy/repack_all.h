#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_

#include "daemon/scheduling/global/policy/local_search.h"

namespace fineserve::plan {

// Improves an assignment that no single step improves (local_search.h), by
// large neighbourhoods: takes replicas out together and packs them again
// (repack.h). A neighbourhood is either all replicas of a model that has
// several, with the neighbours whose models have several too (an engine over
// several GPUs gains only once all of them have room); or all residents of two
// GPUs, beginning with pairs of which one lacks the most and the other has the
// most room. Replicas without a place are packed with them. Each round is
// followed by the single steps. The search ends when a round improves nothing,
// or when no tries are left.
void RepackAll(const SearchLimits& limits, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_
