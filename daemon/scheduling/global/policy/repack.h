#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/score/goodput.h"

namespace fineserve::plan {

// Takes several replicas out and puts them back where the whole is worth most,
// by a beam search. Each replica in turn is tried on every group of `gpus` that
// takes it, and without a place; the `width` best partial assignments are
// followed. The first replica of a model that has none elsewhere comes before
// further ones, and the larger before the smaller. Replicas without a place may
// be among them. Returns true if the whole is then worth more than before; if
// not, all are back in their places. `tries` counts down by one for each group
// tried; at 0 the call does nothing.
bool Repack(const std::vector<uint32_t>& replicas,
            const std::vector<uint32_t>& gpus, size_t width, Board* board,
            uint64_t* tries);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_REPACK_H_
