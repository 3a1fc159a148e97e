#include "tests/gpu/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "kernels/driver/descriptor.h"

namespace fineserve::gpu {

std::string RunToEnd(const Command& command, const std::string& log) {
  const driver::Descriptor out(
      open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!out.valid()) return "cannot write " + log + ": " + strerror(errno);
  // A new process group lets the command's children be killed with it.
  process::ChildProcess child(
      process::Command{.words = command.words,
                       .environment = command.environment,
                       .out = out.get(),
                       .err = out.get(),
                       .own_group = true});
  if (!child.EndsWithin(std::chrono::seconds(command.limit_s))) {
    return "was killed after " + std::to_string(command.limit_s) + " s";
  }
  const int end = child.Wait();
  if (end < 0) return "died of signal " + std::to_string(-end);
  return end == 0 ? "" : "ended with " + std::to_string(end);
}

}  // namespace fineserve::gpu
