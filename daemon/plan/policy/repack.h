#ifndef DAEMON_PLAN_POLICY_REPACK_H_
#define DAEMON_PLAN_POLICY_REPACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/plan/score/goodput.h"

namespace fineserve::plan {

// Takes replicas out at once and puts them back where the whole is worth most,
// by a beam search: one replica after the other, each on every group of `gpus`
// that takes it and nowhere, and of all partial assignments the `width` best
// are followed. The first replica of a model that has none elsewhere comes
// before further ones, the larger before the smaller. Replicas without a place
// may be among them. Returns whether the whole is worth more than before; if
// not, all lie where they lay. `tries` counts down by one for each group tried;
// at 0 nothing is tried any more, and nothing changes.
bool Repack(const std::vector<uint32_t>& replicas,
            const std::vector<uint32_t>& gpus, size_t width, Board* board,
            uint64_t* tries);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_POLICY_REPACK_H_
