#ifndef TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_
#define TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"

namespace fineserve::fsctl {

// Exit codes; scripts rely on them (fsctl.1.scd lists them).
inline constexpr int kExitOk = 0;
inline constexpr int kExitBadAnswer = 1;  // for example: a check failed
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDaemon = 3;  // or one of another version

// Prints one line on stderr and returns `code`.
inline int Fail(int code, const std::string& message) {
  fprintf(stderr, "fsctl: %s\n", message.c_str());
  return code;
}

inline int Fail(int code, const absl::Status& status) {
  return Fail(code, std::string(status.message()));
}

inline int Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_
