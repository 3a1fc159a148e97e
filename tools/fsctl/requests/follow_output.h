#ifndef TOOLS_FSCTL_REQUESTS_FOLLOW_OUTPUT_H_
#define TOOLS_FSCTL_REQUESTS_FOLLOW_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fineserve::fsctl {

// Output of `fsctl requests --follow` and `fsctl trace` for a request, as
// fineserve-proxy reports it (fineserve-proxy(8), "FOLLOWING REQUESTS"). A
// value that is missing or of another type is shown as "-".

// Return the heading of the list, and the line of one request.
std::string FollowHeading(bool color);
std::string FollowLine(const nlohmann::json& life, bool color);

// A request's life on one screen.
std::string TraceText(const nlohmann::json& life, bool color);

// Returns a table of what each named key has spent, as fineserve-proxy reports
// it ({"keys":[...]}). A value that is missing or of another type is shown as
// "-".
std::string UsageText(const nlohmann::json& usages, bool color);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_REQUESTS_FOLLOW_OUTPUT_H_
