#ifndef TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_
#define TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_

#include <cstdint>
#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl models`: what each model's queue and engines do.
int RunModels(const Globals& globals);

struct RequestsOptions {
  uint32_t most = 50;
};
// `fsctl requests`: who waits and who runs.
int RunRequests(const Globals& globals, const RequestsOptions& options);

struct DrainOptions {
  std::string engine;  // empty: all
  bool undo = false;
};
// `fsctl drain`: no new requests for an engine.
int RunDrain(const Globals& globals, const DrainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_
