#ifndef TOOLS_FSCTL_TERMINAL_GLOBALS_H_
#define TOOLS_FSCTL_TERMINAL_GLOBALS_H_

#include <string>

namespace fineserve::fsctl {

// Flags that every command takes.
struct Globals {
  std::string gpu;  // UUID, the beginning of one, or a socket; empty: any
  bool json = false;
  bool color = false;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_GLOBALS_H_
