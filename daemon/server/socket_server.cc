#include "daemon/server/socket_server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log/log.h"
#include "daemon/server/connection.h"
#include "daemon/server/scoreboard_memfd.h"

namespace fineserve::server {

using abi::RefusalCode;
using slab::EngineId;
using slab::LeaseId;

// A process whose exit we want to hear of.
struct SocketServer::Member {
  driver::Descriptor pidfd;
  std::unique_ptr<EventSource> source;
};

namespace {

// A batch of datagrams per wake-up, so that one peer cannot keep the loop.
constexpr int kDatagramsPerWake = 64;

bool IsZero(const uint8_t (&uuid)[16]) {
  return std::all_of(std::begin(uuid), std::end(uuid),
                     [](uint8_t b) { return b == 0; });
}

// glibc has the wrapper since 2.36 only.
int OpenPidfd(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

SocketServer::SocketServer(EventLoop* loop, PoolService* pool,
                           slab::TableWriter* table,
                           const slab::TableIdentity& identity,
                           const Clock* clock, KvRulesOf rules_of)
    : loop_(loop),
      pool_(pool),
      table_(table),
      identity_(identity),
      clock_(clock),
      rules_of_(std::move(rules_of)) {}

SocketServer::~SocketServer() = default;

void SocketServer::Listen(driver::Descriptor listener) {
  listener_ = std::move(listener);
  listener_source_ = loop_->OnReadable(listener_.get(), [this] { Accept(); });
}

void SocketServer::Accept() {
  driver::Descriptor socket(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  Connection& c = connections_.emplace_back();
  c.self = std::prev(connections_.end());
  c.socket = std::move(socket);
  socklen_t length = sizeof(c.peer);
  getsockopt(c.socket.get(), SOL_SOCKET, SO_PEERCRED, &c.peer, &length);
  c.source = loop_->OnReadable(c.socket.get(), [this, &c] { OnReadable(&c); });
}

void SocketServer::OnReadable(Connection* c) {
  abi::Received received;
  for (int i = 0; i < kDatagramsPerWake; ++i) {
    const int error = received.ReceiveFrom(c->socket.get());
    if (error == EAGAIN) return;
    if (error != 0 || !Handle(c, &received)) {
      Close(c);
      return;
    }
  }
}

void SocketServer::Close(Connection* c) {
  // A lease that is granted later finds no one, and Deliver returns it.
  if (c->waiting_ticket != 0) {
    waiting_.erase(c->waiting_ticket);
    pool_->CancelLease(c->waiting_ticket);
  }
  for (LeaseId lease : c->unfetched) ReturnUnseen(c->engine, lease);
  connections_.erase(c->self);
}

bool SocketServer::Refuse(Connection* c, uint32_t sequence, RefusalCode code,
                          const std::string& text) {
  auto refused = abi::MakeMessage<abi::Refused>(sequence);
  refused.code = code;
  refused.daemon_abi_version = abi::kAbiVersion;
  abi::CopyText(refused.text, text.c_str());
  return abi::Send(c->socket.get(), refused) == 0;
}

bool SocketServer::Handle(Connection* c, abi::Received* received) {
  const abi::MessageHeader* header = received->header();
  if (header == nullptr) {
    slab::Count(table_->counters().messages_dropped);
    log::Warning("pid {}: {} bytes that are no message of ours: disconnected",
                 c->peer.pid, received->bytes());
    return false;
  }
  if (!c->greeted) return HandleHello(c, *received);
  if (received->sender().pid != c->peer.pid) {
    slab::Count(table_->counters().messages_dropped);
    log::Warning("pid {} speaks on the connection of pid {}: ignored",
                 received->sender().pid, c->peer.pid);
    return true;
  }
  if (c->scoreboard.valid()) {
    // It asks, so it has mapped its scoreboard: nobody else may from now on.
    if (!c->scoreboard.SealAgainstWriters()) {
      log::Warning("pid {}: cannot seal its scoreboard: {}", c->peer.pid,
                   strerror(errno));
    }
    c->scoreboard = {};
  }
  abi::LeaseRequest lease;
  abi::GranuleRequest granules;
  abi::ReturnRequest back;
  abi::RuleRequest rule;
  if (c->engine != slab::kNoEngine) {
    if (received->As(&rule)) return HandleRule(c, rule);
    if (received->As(&lease)) return HandleLease(c, lease);
    if (received->As(&granules)) return HandleGranules(c, granules);
    if (received->As(&back)) return HandleReturn(c, back);
    if (absl::optional<bool> stays = HandleOfView(c, *received)) return *stays;
  }
  slab::Count(table_->counters().messages_dropped);
  Refuse(c, header->sequence, RefusalCode::kMalformed,
         "not a request that this peer may make");
  return false;
}

bool SocketServer::HandleHello(Connection* c, const abi::Received& received) {
  const abi::MessageHeader& header = *received.header();
  const auto refuse = [&](RefusalCode code, const std::string& text) {
    slab::Count(table_->counters().connections_refused);
    log::Warning("pid {} refused: {}", c->peer.pid, text);
    Refuse(c, header.sequence, code, text);
    return false;
  };
  if (header.abi_version != abi::kAbiVersion) {
    return refuse(
        RefusalCode::kVersion,
        absl::StrCat("version mismatch: this program speaks FineServe ABI ",
                     header.abi_version, ", the daemon speaks ABI ",
                     abi::kAbiVersion, "; install both from one release"));
  }
  abi::Hello hello;
  if (!received.As(&hello) || !abi::IsTerminated(hello.engine_name) ||
      !abi::IsTerminated(hello.program)) {
    slab::Count(table_->counters().messages_dropped);
    return refuse(RefusalCode::kMalformed, "a malformed Hello");
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
                  "another pid namespace; share the daemon's (for a "
                  "container: --pid=host)");
  }
  if (!IsZero(hello.gpu_uuid) &&
      memcmp(hello.gpu_uuid, identity_.gpu_uuid, 16) != 0) {
    return refuse(RefusalCode::kWrongGpu, "this daemon serves another GPU");
  }
  return Admit(c, hello);
}

bool SocketServer::Admit(Connection* c, const abi::Hello& hello) {
  if (hello.role == abi::Role::kObserver) {
    return SendWelcome(c, hello, slab::kNoEngine);
  }
  const auto refuse = [&](const absl::Status& s) {
    slab::Count(table_->counters().connections_refused);
    log::Warning("pid {} refused: {}", c->peer.pid, std::string(s.message()));
    Refuse(c, hello.header.sequence, RefusalCode::kCapacity,
           std::string(s.message()));
    return false;
  };
  // The pidfd first: a member whose death we could not hear of must not be.
  const absl::Status watched = Watch(c->peer.pid);
  if (!watched.ok()) return refuse(watched);
  const absl::StatusOr<EngineId> engine =
      pool_->Join(hello.engine_name, c->peer.uid, c->peer.pid);
  if (!engine.ok()) return refuse(engine.status());
  return SendWelcome(c, hello, *engine);
}

// A pid could be reused between Hello and pidfd_open only if the sender died.
// Then nobody is left who may speak here: every later message must carry that
// pid on this very socket. So no slab is ever leased under a wrong pidfd.
absl::Status SocketServer::Watch(pid_t pid) {
  if (members_.count(pid) != 0) return absl::OkStatus();
  driver::Descriptor pidfd(OpenPidfd(pid));
  if (!pidfd.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot watch pid ", pid, ": ", strerror(errno)));
  }
  Member& member = members_[pid];
  member.source = loop_->OnReadable(pidfd.get(), [this, pid] {
    members_.erase(pid);
    pool_->Exited(pid);
  });
  member.pidfd = std::move(pidfd);
  return absl::OkStatus();
}

bool SocketServer::SendWelcome(Connection* c, const abi::Hello& hello,
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
  if (engine != slab::kNoEngine) {
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

bool SocketServer::HandleRule(Connection* c, const abi::RuleRequest& r) {
  if (r.index >= c->rules.size()) {
    return Refuse(
        c, r.header.sequence, RefusalCode::kMalformed,
        absl::StrCat("no rule ", r.index, ": there are ", c->rules.size()));
  }
  auto answer = abi::MakeMessage<abi::RuleAnswer>(r.header.sequence);
  answer.index = r.index;
  answer.rule = c->rules[r.index];
  return abi::Send(c->socket.get(), answer) == 0;
}

bool SocketServer::HandleLease(Connection* c, const abi::LeaseRequest& r) {
  if (r.slab_count == 0 || c->waiting_ticket != 0) {
    slab::Count(table_->counters().messages_dropped);
    return false;
  }
  const uint64_t ticket = ++last_ticket_;
  // Noted first: a grant may come at once.
  c->waiting_ticket = ticket;
  c->waiting_sequence = r.header.sequence;
  c->waiting_since_ns = clock_->NowNs();
  waiting_[ticket] = c;
  const slab::SlabManager::Outcome outcome =
      pool_->Lease(c->engine, r.slab_count, ticket);
  if (const auto* grant = absl::get_if<PoolService::Grant>(&outcome)) {
    Deliver({*grant});
  } else if (const auto* none =
                 absl::get_if<slab::SlabManager::Exhausted>(&outcome)) {
    waiting_.erase(ticket);
    c->waiting_ticket = 0;
    return Refuse(c, r.header.sequence, RefusalCode::kPoolExhausted,
                  absl::StrCat("the pool has ", none->available,
                               " slabs left, ", r.slab_count, " wanted"));
  }
  return true;
}

void SocketServer::Expire(uint64_t now_ns) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto [ticket, c] = *it;
    if (now_ns - c->waiting_since_ns < kLeaseWaitNs) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    c->waiting_ticket = 0;
    pool_->CancelLease(ticket);
    log::Warning("pid {}: no slabs came back in time for its request",
                 c->peer.pid);
    Refuse(c, c->waiting_sequence, RefusalCode::kPoolExhausted,
           "no engine gave slabs back in time");
  }
}

void SocketServer::Deliver(const std::vector<PoolService::Grant>& grants) {
  for (const PoolService::Grant& grant : grants) {
    const auto it = waiting_.find(grant.ticket);
    if (it == waiting_.end()) {
      ReturnUnseen(grant.engine, grant.lease);
      continue;
    }
    Connection* c = it->second;
    waiting_.erase(it);
    c->waiting_ticket = 0;
    auto answer = abi::MakeMessage<abi::LeaseGrant>(c->waiting_sequence);
    answer.lease = slab::Number(grant.lease);
    answer.slab_count = static_cast<uint32_t>(grant.slabs.size());
    c->unfetched.insert(grant.lease);
    // If the peer is gone its pidfd will say so, and the lease is found then.
    abi::Send(c->socket.get(), answer);
  }
}

// Takes back a lease that its connection's end left without anybody who knows
// of it.
void SocketServer::ReturnUnseen(EngineId engine, LeaseId lease) {
  // NotFound: the engine died too, and its slabs are on their way already.
  const absl::Status s = pool_->Return(engine, lease);
  if (!s.ok()) log::Debug("{}", std::string(s.message()));
}

bool SocketServer::HandleGranules(Connection* c, const abi::GranuleRequest& r) {
  c->unfetched.erase(LeaseId{r.lease});
  return SendGranules(
      c, r.header.sequence, r.lease, r.first, r.max_count, [&](uint32_t index) {
        return pool_->ExportGranule(c->engine, LeaseId{r.lease}, index);
      });
}

bool SocketServer::HandlePoolGranules(Connection* c,
                                      const abi::PoolGranuleRequest& r) {
  return SendGranules(c, r.header.sequence, /*lease=*/0, r.first, r.max_count,
                      [&](uint32_t index) {
                        return pool_->ExportPoolGranule(c->engine, c->peer.pid,
                                                        index);
                      });
}

bool SocketServer::SendGranules(Connection* c, uint32_t sequence,
                                uint32_t lease, uint32_t first,
                                uint32_t max_count,
                                const ExportGranule& export_one) {
  const uint32_t wanted = std::min(max_count, abi::kMaxDescriptorsPerMessage);
  std::vector<driver::Descriptor> owned;
  std::vector<int> descriptors;
  absl::Status error;
  for (uint32_t i = 0; i < wanted; ++i) {
    absl::StatusOr<driver::Descriptor> granule = export_one(first + i);
    if (!granule.ok()) {
      error = granule.status();
      break;
    }
    descriptors.push_back(granule->get());
    owned.push_back(*std::move(granule));
  }
  auto batch = abi::MakeMessage<abi::GranuleBatch>(sequence);
  batch.lease = lease;
  batch.first = first;
  batch.count = static_cast<uint32_t>(descriptors.size());
  int sent = ETOOMANYREFS;
  // Too many descriptors of this user in flight: fewer may still go through.
  for (; batch.count > 0; batch.count /= 2) {
    sent = abi::Send(c->socket.get(), batch, descriptors.data(), batch.count);
    if (sent != ETOOMANYREFS) break;
  }
  if (batch.count > 0) return sent == 0;
  if (absl::IsNotFound(error) || max_count == 0) {
    return Refuse(c, sequence, RefusalCode::kUnknownLease,
                  std::string(error.message()));
  }
  return Refuse(c, sequence, RefusalCode::kDriver,
                error.ok() ? strerror(sent) : std::string(error.message()));
}

bool SocketServer::HandleReturn(Connection* c, const abi::ReturnRequest& r) {
  c->unfetched.erase(LeaseId{r.lease});
  const absl::Status s = pool_->Return(c->engine, LeaseId{r.lease});
  if (!s.ok()) {
    return Refuse(c, r.header.sequence, RefusalCode::kUnknownLease,
                  std::string(s.message()));
  }
  auto done = abi::MakeMessage<abi::ReturnDone>(r.header.sequence);
  done.lease = r.lease;
  return abi::Send(c->socket.get(), done) == 0;
}

}  // namespace fineserve::server
