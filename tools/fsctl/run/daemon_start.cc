#include "tools/fsctl/run/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/file_lock.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/emulated_folder.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kDriverTimeout = absl::Seconds(30);

// cuInit takes seconds on a machine with many GPUs, and so does creating a
// large pool.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr absl::Duration kStartPause = absl::Milliseconds(50);

absl::Status Unavailable(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat("no fineserved is running, and none was started: ", what));
}

// Takes the lock that holds off other calls as long as it is open. The kernel
// closes it when the process ends.
absl::StatusOr<driver::Descriptor> TakeTurn(const std::string& path) {
  driver::Descriptor lock(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return base::Cannot("open", path);
  if (base::LockWithin(lock, kStartTimeout)) return lock;
  return Unavailable(absl::StrCat("another fsctl holds ", path));
}

// Runs in the child. Keeps only the standard streams open, since an inherited
// pipe would stay open as long as the daemon runs.
void BecomeDaemon(const std::vector<std::string>& command, int log) {
  setsid();
  unsetenv("LD_PRELOAD");
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  RedirectOutput(log);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  _exit(Exec(command));
}

// Returns the pool that a daemon of the session `leader` serves. The supervisor
// leads that session.
absl::StatusOr<Pool> PoolOf(const std::string& folder, pid_t leader) {
  std::vector<absl::Status> troubles;
  for (const Pool& pool : LivePools(finding::ListSockets(folder), &troubles)) {
    if (getsid(static_cast<pid_t>(pool.table.daemon_pid)) == leader) {
      return pool;
    }
  }
  return absl::NotFoundError("not yet");
}

// Runs in a process between fsctl, which becomes the engine, and the daemon,
// which must not be a child of the engine. Writes to `output` which daemon
// serves what.
int StartAndWait(const std::vector<std::string>& command,
                 const std::string& folder, int log, int output) {
  const pid_t daemon = fork();
  if (daemon == 0) BecomeDaemon(command, log);
  if (daemon < 0) return kExitBadAnswer;
  const absl::Time deadline = SteadyNow() + kStartTimeout;
  while (SteadyNow() < deadline) {
    const absl::StatusOr<Pool> pool = PoolOf(folder, daemon);
    if (pool.ok()) {
      dprintf(output, "fineserved %d serves %s with a pool of %s", daemon,
              GpuName(pool->table.gpu_uuid).c_str(),
              abi::SizeText(pool->table.pool_bytes()).c_str());
      return kExitOk;
    }
    if (waitpid(daemon, nullptr, WNOHANG) == daemon) return kExitBadAnswer;
    absl::SleepFor(kStartPause);
  }
  kill(daemon, SIGTERM);
  return kExitNoDaemon;
}

}  // namespace

Environment VisibleByUuid(const std::vector<std::string>& uuids) {
  return {{kVisible, absl::StrJoin(uuids, ",")}};
}

absl::StatusOr<Environment> VisibleByIndex(
    const std::vector<std::string>& uuids, const std::string& library) {
  const absl::StatusOr<ProbedDriver> driver =
      ProbeAllDevices(library, kDriverTimeout);
  if (driver.ok()) return IndicesAmong(uuids, *driver);
  return absl::UnavailableError(absl::StrCat("cannot tell the index of ",
                                             uuids[0], ": ", library, ": ",
                                             driver.status().message()));
}

absl::StatusOr<Environment> IndicesAmong(const std::vector<std::string>& uuids,
                                         const ProbedDriver& driver) {
  std::vector<ptrdiff_t> indices;
  for (const std::string& uuid : uuids) {
    const auto found =
        std::find_if(driver.devices.begin(), driver.devices.end(),
                     [&](const ProbedDevice& d) { return d.uuid == uuid; });
    if (found != driver.devices.end()) {
      indices.push_back(found - driver.devices.begin());
    } else if (indices.empty()) {
      return absl::NotFoundError(
          absl::StrCat("the driver has no GPU ", uuid, " among its ",
                       driver.devices.size(), " device(s)"));
    }
  }
  return Environment{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                     {kVisible, absl::StrJoin(indices, ",")}};
}

std::string GpuToServe(const std::string& gpu, const char* library_path,
                       const std::string& emulated_folder) {
  if (!gpu.empty()) return gpu;
  const std::vector<std::string> folders =
      absl::StrSplit(library_path == nullptr ? "" : library_path, ':');
  return std::find(folders.begin(), folders.end(), emulated_folder) !=
                 folders.end()
             ? "emulated"
             : "0";
}

absl::Status StartDaemon(const std::string& gpu) {
  const std::string folder = finding::RuntimeFolder();
  const absl::Status made = finding::MakeRuntimeFolder(folder);
  if (!made.ok()) return Unavailable(std::string(made.message()));
  const absl::StatusOr<driver::Descriptor> turn =
      TakeTurn(absl::StrCat(folder, "/fsctl-run.lock"));
  if (!turn.ok()) return turn.status();
  const absl::StatusOr<Pool> other = ChoosePool(gpu);
  if (other.ok() && other->daemon_answers()) return absl::OkStatus();

  const std::string log_path = absl::StrCat(folder, "/fineserved.log");
  const driver::Descriptor log(
      open(log_path.c_str(),
           O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.valid()) return base::Cannot("open", log_path);
  const off_t begin = lseek(log.get(), 0, SEEK_END);
  // The daemon is supervised, so that its pool outlives it and fsctl upgrade
  // can replace it.
  const std::vector<std::string> command = {
      FindDaemonProgram(),
      "--supervise",
      "--gpu",
      GpuToServe(gpu, getenv("LD_LIBRARY_PATH"), driver::EmulatedFolder()),
      "--pool",
      "auto",
      "--runtime-dir",
      folder};
  Fail(kExitOk, absl::StrCat("no fineserved is running; starting one (log: ",
                             log_path, ")"));
  const ChildResult started = RunChild(
      [&](int output) {
        return StartAndWait(command, folder, log.get(), output);
      },
      kStartTimeout + absl::Seconds(10));
  if (!started.succeeded()) {
    const std::string last = LastLine(log.get(), begin);
    return Unavailable(absl::StrCat(last.empty() ? "it said nothing" : last,
                                    "; its log is ", log_path));
  }
  Fail(kExitOk,
       absl::StrCat(started.output, "; it runs until it is stopped (SIGTERM)"));
  return absl::OkStatus();
}

}  // namespace fineserve::fsctl
