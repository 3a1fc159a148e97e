#ifndef TOOLS_FSCTL_TERMINAL_JSON_TEXT_H_
#define TOOLS_FSCTL_TERMINAL_JSON_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fineserve::fsctl {

// These functions are in one place so that nlohmann's serializer is compiled
// once.

// Indented, for a whole answer.
std::string JsonText(const nlohmann::ordered_json& json);

// Returns one line, for a stream of answers.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_JSON_TEXT_H_
