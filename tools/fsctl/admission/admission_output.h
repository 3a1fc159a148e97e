#ifndef TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_
#define TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_

#include <string>
#include <vector>

#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::fsctl {

// Output of `fsctl models` and `fsctl requests`. `former` are the orphans of
// the daemon's GPU.
using FormerPools = std::vector<abi::OldPool>;
std::string ModelsText(const wire::ModelsT& models, bool color,
                       const FormerPools& former = {});
std::string ModelsJson(const wire::ModelsT& models,
                       const FormerPools& former = {});
std::string RequestsText(const wire::RequestsT& requests, bool color);
std::string RequestsJson(const wire::RequestsT& requests);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_
