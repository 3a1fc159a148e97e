#ifndef TOOLS_UP_ENGINE_REGISTER_H_
#define TOOLS_UP_ENGINE_REGISTER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/keep_folder.h"

namespace fineserve::fsctl {

// A process that some fsctl has started for an engine.
struct RegisteredEngine {
  std::string engine;
  pid_t pid;
  driver::Descriptor pidfd;  // becomes readable when the process ends
};

bool HasEnded(const driver::Descriptor& pidfd);

// Register of the running engines of a fleet file, for the next fsctl: a folder
// in the runtime folder, named after the fleet file's path (config::FleetPath),
// with
//
//   lock        held by the fsctl that runs the fleet; its pid and the path
//
// A fleet that has a folder under another path keeps it.
//
//   NAME.pid    "PID START\n" of engine NAME, where START is the process's
//               start time, field 22 of /proc/PID/stat: a later process with
//               the same pid has another
//   NAME.stopped  "NS\n": an operator stopped engine NAME at this time of
//               CLOCK_MONOTONIC, and it stays so with the next fsctl
//
// An engine's file is written whole, by the engine's own process before that
// becomes the engine's program; until then it holds the lock, too. So the
// lock's holder knows all engines, even if the former fsctl was killed between
// fork and write.
class EngineRegister {
 public:
  // Returns FailedPrecondition, with its pid, if another fsctl runs the fleet.
  // Waits for a second before it does so.
  static absl::StatusOr<EngineRegister> Claim(const std::string& runtime_folder,
                                              const std::string& fleet_path);

  // Returns the registered engines that run. Removes those that have ended, and
  // kills what is left of their process groups.
  std::vector<RegisteredEngine> Running() const;

  // Runs in a process that is about to become an engine: registers itself as
  // `engine`, then releases the lock.
  absl::Status Enter(const std::string& engine);
  void Remove(const std::string& engine) const;

  // Returns the engines that an operator stopped, and since when:
  // CLOCK_MONOTONIC, ns.
  std::map<std::string, uint64_t> Stopped() const;
  absl::Status SetStopped(const std::string& engine, uint64_t since_ns) const;
  void EndStopped(const std::string& engine) const;

 private:
  EngineRegister(std::string folder, driver::Descriptor lock,
                 driver::Descriptor runtime_folder)
      : folder_(std::move(folder)),
        lock_(std::move(lock)),
        runtime_folder_(std::move(runtime_folder)) {}

  std::string PathOf(const std::string& engine, const char* suffix) const;

  std::string folder_;
  driver::Descriptor lock_;
  driver::Descriptor runtime_folder_;  // kept from being cleaned up
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_ENGINE_REGISTER_H_
