#include "tools/fsctl/stack/stack_command.h"

#include <utility>
#include <vector>

#include "tools/fsctl/pool/engine_processes.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/stack/process_stacks.h"
#include "tools/fsctl/stack/stack_output.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunStack(const Globals& globals, const StackOptions& options) {
  const auto pids = ProcessesOf(globals.gpu, options.engine);
  if (!pids.ok()) {
    return Fail(ExitCodeOfProcess(pids.status()), pids.status());
  }
  std::vector<ProcessStacks> processes;
  for (const pid_t pid : *pids) {
    const absl::Status process = CheckProcess(pid);
    if (!process.ok()) return Fail(kExitBadAnswer, process);
    absl::StatusOr<ProcessStacks> stacks = StacksOf(pid);
    if (!stacks.ok()) return Fail(kExitBadAnswer, stacks.status());
    processes.push_back(*std::move(stacks));
  }
  return Print(globals.json ? StacksJson(processes)
                            : StacksText(processes, globals.color));
}

}  // namespace fineserve::fsctl
