#ifndef TOOLS_FSCTL_FOLLOW_USAGE_OUTPUT_H_
#define TOOLS_FSCTL_FOLLOW_USAGE_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fineserve::fsctl {

// Table of what each named key has spent, as fineserve-proxy reports it
// ({"keys":[...]}). A value that is missing or of another type is shown as "-".
std::string UsageText(const nlohmann::json& usages, bool color);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_FOLLOW_USAGE_OUTPUT_H_
