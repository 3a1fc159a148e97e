#ifndef TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_
#define TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_

#include <cstdint>
#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl models`: shows the queue and the engines of each model. All commands
// return the exit code.
int RunModels(const Globals& globals);

struct RequestsOptions {
  uint32_t most = 50;
};
// `fsctl requests`: lists requests that wait or run.
int RunRequests(const Globals& globals, const RequestsOptions& options);

struct DrainOptions {
  std::string target;   // an engine, a GPU or a machine
  bool all = false;     // every engine, instead
  bool undo = false;    // let it accept requests again
  uint32_t wait_s = 0;  // return once they run nothing, at most so late
};
// `fsctl drain`: stops an engine, or all of a GPU or of a machine, from getting
// new requests.
int RunDrain(const Globals& globals, const DrainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ADMISSION_ADMISSION_COMMANDS_H_
