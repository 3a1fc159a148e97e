#ifndef TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_
#define TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
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

// Flushes the printed text and returns `code`. Returns an error instead of
// success if the text could not be written (a full disk, a closed pipe).
inline int FlushOutput(int code) {
  std::cout.flush();
  const bool written = fflush(stdout) == 0 && ferror(stdout) == 0 && std::cout;
  if (written || code != kExitOk) return code;
  return Fail(kExitBadAnswer,
              std::string("cannot write the output: ") + strerror(errno));
}

inline int Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_EXIT_CODE_H_
