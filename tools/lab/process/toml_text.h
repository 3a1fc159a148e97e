#ifndef TOOLS_LAB_PROCESS_TOML_TEXT_H_
#define TOOLS_LAB_PROCESS_TOML_TEXT_H_

#include <string>

namespace fineserve::process {

// Returns the text as a string of TOML; it needs no escapes.
inline std::string Quoted(const std::string& text) { return '"' + text + '"'; }

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_TOML_TEXT_H_
