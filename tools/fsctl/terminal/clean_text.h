#ifndef TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_
#define TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_

#include <string>

#include "daemon/abi/printable.h"

namespace fineserve::fsctl {

// A text that another process or machine said, made safe to print.
inline std::string Clean(const std::string& text) {
  return abi::Printable(text.data(), text.size());
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_
