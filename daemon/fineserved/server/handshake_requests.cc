// The part of SocketServer that lets processes join, and sends them their
// rules.

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/fineserved/pool_service/scoreboard_memfd.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {

using abi::RefusalCode;
using slab::EngineId;

namespace {

bool IsZero(const uint8_t (&uuid)[16]) {
  return std::all_of(std::begin(uuid), std::end(uuid),
                     [](uint8_t b) { return b == 0; });
}

}  // namespace

bool SocketServer::HandleHello(PeerConnection* c,
                               const abi::Received& received) {
  const abi::MessageHeader& header = *received.header();
  const auto refuse = [&](RefusalCode code, const std::string& text) {
    return RefuseHello(c, header.sequence, code, text);
  };
  if (header.abi_version != abi::kAbiVersion) {
    return refuse(
        RefusalCode::kVersion,
        absl::StrCat("version mismatch: this program speaks FineServe ABI ",
                     header.abi_version, ", the daemon speaks ABI ",
                     abi::kAbiVersion, "; install both from one release"));
  }
  abi::Hello hello;
  if (!received.As(&hello) || !abi::IsTerminated(hello.engine_name)) {
    Dropped();
    return refuse(RefusalCode::kMalformed, "its Hello is malformed");
  }
  if (c->peer.uid != geteuid() && c->peer.uid != 0) {
    return refuse(
        RefusalCode::kNotPermitted,
        absl::StrCat("user ", c->peer.uid, " may not use the pool of user ",
                     geteuid(), "; run engine and daemon as one user"));
  }
  const pid_t sender = received.sender().pid;
  if (sender == 0 || sender != c->peer.pid ||
      static_cast<pid_t>(hello.pid) != sender) {
    return refuse(RefusalCode::kNotPermitted,
                  "this process is in another pid namespace; share the "
                  "daemon's (for a container: --pid=host)");
  }
  if (!IsZero(hello.gpu_uuid) &&
      memcmp(hello.gpu_uuid, identity_.gpu_uuid, 16) != 0) {
    return refuse(RefusalCode::kWrongGpu, "this daemon serves another GPU");
  }
  return Join(c, hello);
}

bool SocketServer::RefuseHello(PeerConnection* c, uint32_t sequence,
                               RefusalCode code, const std::string& text) {
  slab::Count(table_->counters().connections_refused);
  log::Warning("refused pid {}: {}", c->peer.pid, text);
  Refuse(c, sequence, code, text);
  return false;
}

bool SocketServer::Join(PeerConnection* c, const abi::Hello& hello) {
  const pid_t pid = c->peer.pid;
  const uint64_t image = abi::ProcessImage(pid);
  EndFormerImage(pid, image);
  if (hello.role == abi::Role::kObserver) {
    c->hello = hello;
    return WelcomeObserver(c);
  }
  const auto refuse = [&](const absl::Status& s) {
    return RefuseHello(c, hello.header.sequence, RefusalCode::kCapacity,
                       std::string(s.message()));
  };
  // Watches first: a process whose exit we cannot notice must not join.
  const absl::Status watched = Watch(pid, image);
  if (!watched.ok()) return refuse(watched);
  const absl::StatusOr<EngineId> engine = EngineFor(*c, hello, image);
  if (!engine.ok()) return refuse(engine.status());
  return SendWelcome(c, hello, *engine);
}

// A follower has no memory on this GPU, so it does not join the pool.
absl::StatusOr<EngineId> SocketServer::EngineFor(const PeerConnection& c,
                                                 const abi::Hello& hello,
                                                 uint64_t image) {
  if (hello.role != abi::Role::kFollower) {
    return pool_->Join(hello.engine_name, c.peer.uid, c.peer.pid, image);
  }
  const absl::optional<EngineId> engine =
      pool_->state().Find(hello.engine_name, c.peer.uid);
  if (engine) return *engine;
  return absl::NotFoundError(absl::StrCat("its engine, ", hello.engine_name,
                                          ", has no rank on this GPU"));
}

// Welcomes the observer unless the pool still waits for a former program with
// its pid to end. If the observer continues without the answer, its context
// prolongs the quarantine.
bool SocketServer::WelcomeObserver(PeerConnection* c) {
  if (!c->hello || pool_->state().Awaits(c->peer.pid)) return true;
  const abi::Hello hello = *c->hello;
  c->hello.reset();
  return SendWelcome(c, hello, slab::kNoEngine);
}

bool SocketServer::SendWelcome(PeerConnection* c, const abi::Hello& hello,
                               EngineId engine) {
  auto welcome = abi::MakeMessage<abi::Welcome>(hello.header.sequence);
  welcome.epoch = identity_.epoch;
  welcome.engine_id = slab::Number(engine);
  welcome.daemon_pid = static_cast<uint32_t>(getpid());
  welcome.granule_bytes = identity_.geometry.granule_bytes;
  welcome.granules_per_slab = identity_.geometry.granules_per_slab;
  welcome.slab_count = identity_.geometry.slab_count;
  KvRules rules = rules_of_(hello.engine_name);
  for (uint64_t bytes : rules.sizes) {
    if (welcome.declared_size_count == abi::kDeclaredSizeCapacity) break;
    welcome.declared_sizes[welcome.declared_size_count++] = bytes;
  }
  c->rules = std::move(rules.frames);
  c->share = rules.share;
  welcome.rule_count = static_cast<uint32_t>(c->rules.size());
  int descriptors[2] = {table_->descriptor(), -1};
  uint32_t count = 1;
  c->is_follower = hello.role == abi::Role::kFollower;
  c->is_mover = hello.role == abi::Role::kMover || c->is_follower;
  if (c->is_mover) CloseFormerMovers(c);
  if (engine != slab::kNoEngine && !c->is_mover) {
    absl::StatusOr<abi::SealedMemfd> scoreboard =
        MakeEngineScoreboard(identity_.epoch, engine, c->peer.pid);
    if (!scoreboard.ok()) {
      return Refuse(c, hello.header.sequence, RefusalCode::kCapacity,
                    std::string(scoreboard.status().message()));
    }
    c->scoreboard = *std::move(scoreboard);
    descriptors[count++] = c->scoreboard.descriptor();
  }
  c->greeted = true;
  c->engine = engine;
  return abi::Send(c->socket.get(), welcome, descriptors, count) == 0;
}

// A process that connects its mover again has given up what it sent on its
// former connections.
void SocketServer::CloseFormerMovers(const PeerConnection* mover) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    PeerConnection& c = *it++;  // Close erases it
    if (c.is_mover && c.peer.pid == mover->peer.pid && &c != mover) Close(&c);
  }
}

bool SocketServer::HandleRule(PeerConnection* c, const abi::RuleRequest& r) {
  if (r.index >= c->rules.size()) {
    return Refuse(
        c, r.header.sequence, RefusalCode::kMalformed,
        absl::StrCat("rule ", r.index, " does not exist: this engine has ",
                     c->rules.size()));
  }
  auto answer = abi::MakeMessage<abi::RuleAnswer>(r.header.sequence);
  answer.index = r.index;
  answer.rule = c->rules[r.index];
  return abi::Send(c->socket.get(), answer) == 0;
}

}  // namespace fineserve::server
