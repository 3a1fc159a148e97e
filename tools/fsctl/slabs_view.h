#ifndef TOOLS_FSCTL_SLABS_VIEW_H_
#define TOOLS_FSCTL_SLABS_VIEW_H_

#include <string>

#include "tools/fsctl/daemon_choice.h"
#include "tools/fsctl/format.h"

namespace fineserve::fsctl {

// What `fsctl slabs` prints about a pool. `fold`: consecutive slabs of the same
// state, engine and lease make one line.
std::string SlabsText(const Pool& pool, bool fold, const Moment& now,
                      bool color);
std::string SlabsJson(const Pool& pool, bool fold, const Moment& now);

// One character per slab, or per group of slabs where there are more than
// `width`: the commonest state of the group, but quarantine always shows.
std::string StateBar(const abi::TableSnapshot& table, size_t width);

const char* StateName(abi::SlabState state);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_VIEW_H_
