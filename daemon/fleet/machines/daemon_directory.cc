#include "daemon/fleet/machines/daemon_directory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/machines/this_machine.h"

namespace fineserve::cluster {

absl::StatusOr<wire::RemoteDaemon> RemoteDaemonOf(
    const config::ClusterSettings& cluster, const std::string& gpu,
    const wire::KeyFolder& keys) {
  const config::Machine* machine = cluster.MachineOf(gpu);
  if (machine == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no machine of [cluster] has the GPU ", gpu));
  }
  const auto trusted = keys.Trusted();
  if (!trusted.ok()) return trusted.status();
  const auto key = trusted->find(machine->name);
  if (key == trusted->end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("machine \"", machine->name,
                     "\" is not trusted here; print its key "
                     "there with fsctl keys show, and here: fsctl keys trust ",
                     machine->name, " KEY"));
  }
  const auto key_now = [keys, name = machine->name] {
    const auto now = keys.Trusted();
    if (!now.ok() || now->count(name) == 0) return std::string();
    return now->at(name);
  };
  return wire::RemoteDaemon{machine->host, cluster.PortOf(gpu), key->second,
                            key_now};
}

DaemonDirectory::DaemonDirectory(config::ClusterSettings cluster,
                                 std::string folder, wire::KeyFolder keys)
    : cluster_(std::move(cluster)),
      folder_(std::move(folder)),
      keys_(std::move(keys)),
      machine_(absl::NotFoundError("there is one machine")) {
  if (cluster_.IsOn()) machine_ = ThisMachine(cluster_);
}

bool DaemonDirectory::IsLocal(const std::string& gpu) const {
  if (!cluster_.IsOn()) return true;
  const config::Machine* its = cluster_.MachineOf(gpu);
  return its != nullptr && machine_.ok() && its->name == machine_->name;
}

absl::StatusOr<std::string> DaemonDirectory::LocalPath(
    const std::string& gpu) const {
  return finding::FindAdmissionPath(folder_, gpu);
}

absl::StatusOr<wire::ClientSocket> DaemonDirectory::Connect(
    const std::string& gpu) const {
  if (cluster_.IsOn() && !machine_.ok()) return machine_.status();
  if (IsLocal(gpu)) {
    const absl::StatusOr<std::string> path = LocalPath(gpu);
    if (!path.ok()) return path.status();
    return wire::ClientSocket::Connect(*path);
  }
  const absl::StatusOr<wire::KeyPair> own = keys_.Own();
  if (!own.ok()) return own.status();
  const absl::StatusOr<wire::RemoteDaemon> daemon =
      RemoteDaemonOf(cluster_, gpu, keys_);
  if (!daemon.ok()) return daemon.status();
  return wire::ClientSocket::Connect(*daemon, *own);
}

}  // namespace fineserve::cluster
