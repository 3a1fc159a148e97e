#ifndef TOOLS_LAB_STAGE_MACHINE_H_
#define TOOLS_LAB_STAGE_MACHINE_H_

#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/contract/abi/table_reader.h"
#include "kernels/driver/descriptor.h"
#include "tools/lab/process/linger_helpers.h"
#include "tools/lab/stage/process.h"

namespace fineserve::stage {

// A separate machine for a test or a bench: an emulated GPU (a real one with
// FINESERVE_TEST_GPU=0), a runtime folder, and all daemons and engines that are
// started on it. All are real processes. A function that reaches its time limit
// fails the running test.
class Machine {
 public:
  // `out` applies to all programs that are started here.
  explicit Machine(Process::Stdout out = Process::Stdout::kPipe);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // Starts fineserved on the GPU with a pool of 16 slabs of 4 MiB and
  // waits until it serves.
  std::unique_ptr<Process> StartDaemon(
      const std::vector<std::string>& arguments = {});
  // Do the same in two steps, so that several daemons can start at once.
  std::unique_ptr<Process> LaunchDaemon(
      const std::vector<std::string>& arguments);
  // Waits for the daemon, and returns whether it serves.
  static bool AwaitDaemon(Process* daemon);
  // Starts the stock engine under the preload, with two layers of `kv` each
  // ("4MiB" is one slab), and waits until it has written and verified. Its KV
  // must read zero, as slabs do.
  std::unique_ptr<Process> StartEngine(
      const std::string& kv, const std::vector<std::string>& arguments = {},
      const Process::Environment& more = {});
  // Does the same where no daemon serves the engine: its KV is the driver's
  // memory, which does not read zero on the emulated device.
  std::unique_ptr<Process> StartEngineWithoutDaemon(
      const std::string& kv, const std::vector<std::string>& arguments = {},
      const Process::Environment& more = {});
  // The same without waiting.
  std::unique_ptr<Process> LaunchEngine(
      const std::string& kv, const std::vector<std::string>& arguments = {},
      const Process::Environment& more = {});
  // Starts our program `words[0]`, or the program at that path, in the
  // machine's environment.
  std::unique_ptr<Process> LaunchProgram(
      std::vector<std::string> words,
      const Process::Environment& more = {}) const;
  // Starts the program in the same way, as an engine under the preload, with
  // the variables `more`.
  std::unique_ptr<Process> LaunchPreloaded(
      std::vector<std::string> words,
      const Process::Environment& more = {}) const;
  // Starts an engine of this name with a view, with `flags`, and waits until it
  // is ready. It serves random requests to itself for an hour.
  std::unique_ptr<Process> StartRandomView(
      const std::string& name, const std::vector<std::string>& flags,
      const Process::Environment& more = {}) const;
  Finished Fsctl(const std::vector<std::string>& arguments);

  // The living daemon's table.
  abi::TableSnapshot Table() { return TableAt(SocketPath()); }
  // Returns the same, or null if no daemon answers in time.
  absl::optional<abi::TableSnapshot> TableIfServed(
      absl::Duration limit = absl::Milliseconds(200)) const;
  static abi::TableSnapshot TableAt(const std::string& socket);
  // Kills the daemon that wrote this table; false if there is none.
  static bool KillDaemonOf(const abi::TableSnapshot& table) {
    return process::SignalOne(static_cast<pid_t>(table.daemon_pid), SIGKILL);
  }
  uint32_t SlabsIn(abi::SlabState state);
  uint32_t SlabsOf(pid_t member);
  bool EventuallyFree(uint32_t slabs);
  // True if the emulated device still has a dead client's work to do
  // (EMUCUDA_LINGER_MS). EndLingering makes it do that work now.
  bool Lingers() const {
    return !process::LingerHelpers(device_folder_.path()).empty();
  }
  void EndLingering() const { process::EndLingering(device_folder_.path()); }
  // A value for EMUCUDA_LINGER_MS that is longer than any test; EndLingering
  // ends the wait.
  static constexpr char kUntilEndLingering[] = "3600000";
  std::string SocketPath() const;
  // Returns the sockets of all daemons, including dead ones.
  std::vector<std::string> Sockets() const;
  // Returns a new connection to the living daemon, without a Hello.
  driver::Descriptor Connect();

  std::string Program(const std::string& name) const;
  // Returns $FINESERVE_TEST_GPU in the form of fineserved's --gpu.
  static std::string Gpu();
  static bool OnEmulatedGpu();
  const Process::Environment& environment() const { return environment_; }
  // Gives this process the machine's environment.
  void Enter() const;
  // Sets a variable of every process that is started from now on.
  void Set(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }
  // Returns the environment that makes a program an engine on this machine,
  // with `more` added.
  Process::Environment EngineEnvironment(
      const Process::Environment& more = {}) const;
  const std::string& folder() const { return folder_.path(); }

  static constexpr uint32_t kSlabs = 16;

 private:
  const process::TemporaryFolder folder_;
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const Process::Stdout out_;
  Process::Environment environment_;
};

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_MACHINE_H_
