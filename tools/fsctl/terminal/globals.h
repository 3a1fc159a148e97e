#ifndef TOOLS_FSCTL_TERMINAL_GLOBALS_H_
#define TOOLS_FSCTL_TERMINAL_GLOBALS_H_

#include <string>

namespace fineserve::fsctl {

// Flags that every command takes.
struct Globals {
  std::string gpu;  // UUID, prefix of one, or socket path; empty: any
  bool json = false;
  bool color = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_GLOBALS_H_
