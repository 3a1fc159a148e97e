#include "tools/fsctl/admission/admission_commands.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/wire/message.h"
#include "daemon/wire/socket.h"
#include "tools/fsctl/admission/admission_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(5);

absl::StatusOr<wire::ClientSocket> ConnectToDaemon(const std::string& gpu) {
  const absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (!pool.ok()) return pool.status();
  if (!pool->daemon_answers()) {
    return absl::NotFoundError(DaemonTrouble(*pool));
  }
  const std::string path = wire::AdmissionPath(pool->socket);
  if (access(path.c_str(), F_OK) != 0) {
    return absl::NotFoundError(
        "this fineserved has no fleet and admits no requests; start it with "
        "--fleet FILE");
  }
  return wire::ClientSocket::Connect(path);
}

// Waits until the socket may have news, or a moment: a connection that is made
// is none.
void Wait(const wire::ClientSocket& socket) {
  pollfd ready = {socket.descriptor(), POLLIN, 0};
  poll(&ready, 1, 20);
}

absl::StatusOr<wire::MessageT> Exchange(wire::ClientSocket* socket,
                                        const std::string& question) {
  const auto deadline = Clock::now() + kPatience;
  while (!socket->Send(question)) {
    if (Clock::now() > deadline) {
      return absl::NotFoundError("fineserved takes no connection");
    }
    Wait(*socket);
  }
  for (;;) {
    const absl::optional<std::string> answer = socket->Receive();
    if (answer) return wire::Decode(*answer);
    if (Clock::now() > deadline) {
      return absl::NotFoundError(absl::StrCat(
          "fineserved has not answered for ", kPatience.count(), " s"));
    }
    Wait(*socket);
  }
}

// The daemon's answer; what it refuses is InvalidArgument.
template <typename Body>
absl::StatusOr<wire::MessageT> Ask(const Globals& globals, Body body) {
  absl::StatusOr<wire::ClientSocket> socket = ConnectToDaemon(globals.gpu);
  if (!socket.ok()) return socket.status();
  absl::StatusOr<wire::MessageT> answer =
      Exchange(&*socket, wire::Encode(0, 0, std::move(body)));
  if (!answer.ok()) return answer;
  const wire::RefusedT* refused = answer->body.AsRefused();
  if (refused == nullptr) return answer;
  return absl::InvalidArgumentError(refused->why);
}

int Unexpected() {
  return Fail(kExitNoDaemon, "fineserved answers what was not asked");
}

}  // namespace

int RunModels(const Globals& globals) {
  const auto answer = Ask(globals, wire::ModelsQueryT());
  if (!answer.ok()) return Fail(ExitCodeOf(answer.status()), answer.status());
  const wire::ModelsT* models = answer->body.AsModels();
  if (models == nullptr) return Unexpected();
  return Print(globals.json ? ModelsJson(*models)
                            : ModelsText(*models, globals.color));
}

int RunRequests(const Globals& globals, const RequestsOptions& options) {
  wire::RequestsQueryT query;
  query.most = options.most;
  const auto answer = Ask(globals, std::move(query));
  if (!answer.ok()) return Fail(ExitCodeOf(answer.status()), answer.status());
  const wire::RequestsT* requests = answer->body.AsRequests();
  if (requests == nullptr) return Unexpected();
  return Print(globals.json ? RequestsJson(*requests)
                            : RequestsText(*requests, globals.color));
}

int RunDrain(const Globals& globals, const DrainOptions& options) {
  wire::DrainT drain;
  drain.engine = options.engine;
  drain.on = !options.undo;
  const auto answer = Ask(globals, std::move(drain));
  if (!answer.ok()) return Fail(ExitCodeOf(answer.status()), answer.status());
  if (answer->body.AsDone() == nullptr) return Unexpected();
  const std::string who =
      options.engine.empty() ? "all engines" : "engine " + options.engine;
  if (globals.json) return Print("{\"done\": true}\n");
  return Print(absl::StrCat(who, options.undo
                                     ? ": takes requests again\n"
                                     : ": no new requests; what runs ends "
                                       "as ever (see fsctl models)\n"));
}

}  // namespace fineserve::fsctl
