#include "tools/fsctl/daemons/ask_daemons.h"

#include <poll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the reason why no daemon with a fleet runs.
absl::Status NoFleetDaemon(const std::string& gpu) {
  const absl::Status pool = ChooseAnsweringPool(gpu).status();
  if (!pool.ok() && !absl::IsInvalidArgument(pool)) return pool;
  return absl::NotFoundError(
      "fineserved runs without a fleet, so nothing is planned; start it with "
      "--fleet FILE");
}

// Adds the daemons of other machines that are alive and trusted here.
void AddRemote(const std::string& gpu, std::vector<FleetDaemon>* daemons) {
  const absl::StatusOr<cluster::FleetView> view =
      cluster::ReadView(finding::RuntimeFolder());
  if (!view.ok()) return;
  const auto trusted = wire::KeyFolder(wire::KeyFolder::Default()).Trusted();
  for (const cluster::SeenMachine& machine : view->machines) {
    const std::string& name = machine.record.name;
    if (name == view->machine || !machine.is_alive) continue;
    if (!trusted.ok() || trusted->count(name) == 0) {
      Fail(0, absl::StrCat("warning: machine ", name,
                           " is not asked: it is not trusted here; see fsctl "
                           "keys --help"));
      continue;
    }
    for (const cluster::DaemonRecord& d : machine.record.daemons) {
      if (!d.answers || !finding::MeansGpu(gpu, d.gpu)) continue;
      daemons->push_back(
          {d.gpu,
           "",
           {machine.record.host, d.port, trusted->at(name), nullptr},
           name});
    }
  }
}

absl::StatusOr<wire::ClientSocket> ConnectTo(const FleetDaemon& daemon) {
  if (!daemon.path.empty()) return wire::ClientSocket::Connect(daemon.path);
  const absl::StatusOr<wire::KeyPair> own =
      wire::KeyFolder(wire::KeyFolder::Default()).Own();
  if (!own.ok()) return own.status();
  return wire::ClientSocket::Connect(daemon.remote, *own);
}

// One question on its way.
struct Asked {
  absl::StatusOr<wire::ClientSocket> socket;
  bool sent = false;
  absl::optional<std::string> answer = absl::nullopt;

  bool IsOver() const { return !socket.ok() || answer.has_value(); }
};

void Proceed(const std::string& question, Asked* asked) {
  if (!asked->sent) asked->sent = asked->socket->Send(question);
  if (asked->sent) asked->answer = asked->socket->Receive();
}

// Waits until one of the sockets may be ready, or for a moment, since poll does
// not wake when a connection is established.
void Wait(const std::vector<Asked>& all) {
  std::vector<pollfd> ready;
  for (const Asked& asked : all) {
    if (!asked.IsOver()) {
      ready.push_back({asked.socket->descriptor(), POLLIN, 0});
    }
  }
  poll(ready.data(), ready.size(), 20);
}

absl::StatusOr<wire::MessageT> AnswerOf(const Asked& asked,
                                        std::chrono::milliseconds patience) {
  if (!asked.socket.ok()) return asked.socket.status();
  if (asked.answer) return wire::Decode(*asked.answer);
  return absl::NotFoundError(
      absl::StrFormat("fineserved has not answered within %g s; see its log",
                      std::chrono::duration<double>(patience).count()));
}

}  // namespace

bool IsOneOfSeveral() {
  return cluster::ReadView(finding::RuntimeFolder()).ok();
}

bool IsMachine(const std::string& name) {
  const absl::StatusOr<cluster::FleetView> view =
      cluster::ReadView(finding::RuntimeFolder());
  return view.ok() && std::any_of(view->machines.begin(), view->machines.end(),
                                  [&](const cluster::SeenMachine& machine) {
                                    return machine.record.name == name;
                                  });
}

absl::StatusOr<std::vector<FleetDaemon>> FindFleetDaemons(
    const std::string& gpu) {
  std::vector<FleetDaemon> daemons;
  const absl::StatusOr<cluster::FleetView> view =
      cluster::ReadView(finding::RuntimeFolder());
  const std::string here = view.ok() ? view->machine : "";
  for (const std::string& path :
       finding::ListAdmissionPaths(finding::RuntimeFolder(), gpu)) {
    daemons.push_back({finding::GpuOfSocket(path), path, {}, here});
  }
  if (!finding::IsSocketPath(gpu)) AddRemote(gpu, &daemons);
  if (daemons.empty()) return NoFleetDaemon(gpu);
  return daemons;
}

std::vector<absl::StatusOr<wire::MessageT>> AskDaemons(
    const std::vector<FleetDaemon>& daemons, const std::string& question,
    std::chrono::milliseconds patience) {
  std::vector<Asked> all;
  for (const FleetDaemon& daemon : daemons) {
    all.push_back({ConnectTo(daemon)});
  }
  const auto deadline = Clock::now() + patience;
  const auto is_over = [](const Asked& asked) { return asked.IsOver(); };
  for (;;) {
    for (Asked& asked : all) {
      if (!asked.IsOver()) Proceed(question, &asked);
    }
    if (std::all_of(all.begin(), all.end(), is_over)) break;
    if (Clock::now() > deadline) break;
    Wait(all);
  }
  std::vector<absl::StatusOr<wire::MessageT>> answers;
  for (const Asked& asked : all) answers.push_back(AnswerOf(asked, patience));
  return answers;
}

}  // namespace fineserve::fsctl
