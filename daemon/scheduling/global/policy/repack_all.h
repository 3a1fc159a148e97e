#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_

#include "daemon/scheduling/global/policy/local_search.h"

namespace fineserve::plan {

// Improves an assignment that no single step improves (local_search.h), by
// large neighbourhoods: replicas are taken out together and packed again
// (repack.h). These are all replicas of a model that has several, with the
// neighbours that have several too (an engine over several GPUs gains only once
// all of them have room); and all residents of two GPUs, beginning with pairs
// of which one lacks the most and the other has the most room. Replicas without
// a place go with them. Each round is followed by the single steps. The search
// ends when a round improves nothing, or the tries have run out.
void RepackAll(const SearchLimits& limits, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_ALL_H_
