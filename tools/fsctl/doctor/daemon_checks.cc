#include "tools/fsctl/doctor/daemon_checks.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/old_pool.h"

namespace fineserve::fsctl {
namespace {

using Result = Check::Result;

}  // namespace

Check CheckDaemonTrouble(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsUnavailable(status)) {
    return {Result::kFail, "daemon", message,
            "start fineserved again: the daemon that left this socket is "
            "dead"};
  }
  if (absl::IsUnknown(status)) {
    return {
        Result::kFail, "daemon", message,
        "give fsctl what the message says it lacks; the daemon may be well"};
  }
  const char* fix = absl::IsFailedPrecondition(status)
                        ? "restart fineserved and its engines after an upgrade"
                        : "see the daemon's log";
  return {Result::kFail, "daemon", message, fix};
}

// SO_PEERCRED gives the daemon's pid as this process sees it, the Welcome gives
// it as the daemon sees it. They differ across pid namespaces.
Check CheckPidNamespace(const abi::ObserverLink& link) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(link.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) !=
      0) {
    return {Result::kSkipped, "pid namespace",
            absl::StrCat("not checked: SO_PEERCRED: ", strerror(errno)), ""};
  }
  if (static_cast<uint32_t>(peer.pid) == link.welcome.daemon_pid) {
    return {Result::kOk, "pid namespace", "shared with the daemon", ""};
  }
  return {Result::kFail, "pid namespace",
          absl::StrCat("the daemon has pid ", link.welcome.daemon_pid,
                       " in its own pid namespace, but ", peer.pid, " in ours"),
          "run fsctl in the daemon's pid namespace (docker run --pid=host)"};
}

Check CheckQuarantine(const abi::TableSnapshot& table) {
  if (table.counters.process_lists_useless == 0) {
    return {Result::kOk, "quarantine", "the driver lists the GPU's processes",
            ""};
  }
  return {Result::kFail, "quarantine",
          "the driver does not list the GPU's processes by their pids here, so "
          "slabs of dead engines stay quarantined",
          "share the host's pid namespace (docker run --pid=host) and install "
          "NVML (libnvidia-ml.so.1); under MPS, one that can list its clients "
          "(fineserved's log has the reason)"};
}

Check CheckFormerPools(const abi::TableSnapshot& table) {
  const std::string held =
      abi::Describe(abi::FindOldPools(table.gpu_uuid, table.epoch));
  if (held.empty()) {
    return {Result::kOk, "former pools", "none is held", ""};
  }
  return {Result::kFail, "former pools", held,
          "fsctl up restarts its own engines, one after another; restart the "
          "others. A daemon that is a unit of systemd or runs "
          "under fineserved --supervise hands its pool to the next one"};
}

}  // namespace fineserve::fsctl
