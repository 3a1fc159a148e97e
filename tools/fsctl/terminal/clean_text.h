#ifndef TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_
#define TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/contract/abi/printable.h"

namespace fineserve::fsctl {

// Returns a text from another process or machine, made safe to print.
inline std::string Clean(const std::string& text) {
  return abi::Printable(text.data(), text.size());
}

// Returns any text as one word for a shell, in single quotes.
inline std::string ShellQuoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_CLEAN_TEXT_H_
