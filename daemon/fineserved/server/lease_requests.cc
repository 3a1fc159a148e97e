// The part of SocketServer that leases whole slabs and sends granules.

#include <errno.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/log/log.h"
#include "daemon/fineserved/pool_service/pool_sizing.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "daemon/fineserved/server/socket_server.h"

namespace fineserve::server {

using abi::RefusalCode;
using slab::EngineId;
using slab::LeaseId;

namespace {

// Together with PoolState::kLeaseWaitNs this is less than a shim's wait for its
// answer.
constexpr uint64_t kGrowthWaitNs = 3'000'000'000;

std::string WhyRefused(const slab::Refusal& refusal) {
  if (refusal.late) return "no engine returned slabs in time";
  if (refusal.limit != 0) {
    return absl::StrCat("the engine's limit of ", refusal.limit, " slabs ",
                        abi::kLimitWords, " leaves ", refusal.available, ", ",
                        refusal.count, " wanted");
  }
  return absl::StrCat("the pool has ", refusal.available, " slabs left, ",
                      refusal.count, " wanted");
}

}  // namespace

bool SocketServer::HandleLease(PeerConnection* c, const abi::LeaseRequest& r) {
  if (r.slab_count == 0 || r.request > abi::kMostLeaseRequest ||
      c->waiting_ticket != 0 || c->waiting_whole ||
      (r.request != 0 && r.request == c->given_up)) {
    return Dropped();
  }
  c->whole_deadline_ns = clock_->NowNs() + kGrowthWaitNs;
  LeaseOrWait(c, r);
  Answer();
  return true;
}

// Leases whole slabs. If a pool of size "auto" may grow, waits instead: it
// grows for a starting engine, even if it has just given memory to another
// engine.
void SocketServer::LeaseOrWait(PeerConnection* c, const abi::LeaseRequest& r) {
  c->waiting_whole.reset();
  if (r.request != 0 && r.request == c->given_up) return;
  const slab::Asker asker = {c->peer.pid, r.request};
  const uint32_t lack =
      pool_->state().LackForWhole(c->engine, r.slab_count, asker);
  if (lack > 0 && sizing_ != nullptr &&
      clock_->NowNs() < c->whole_deadline_ns && sizing_->AwaitSlabs(lack)) {
    c->waiting_whole = r;
    return;
  }
  pool_->Lease(c->engine, r.slab_count, Await(c, r.header.sequence), asker);
}

// Returns a ticket for the peer's request; the answer comes under this ticket.
uint64_t SocketServer::Await(PeerConnection* c, uint32_t sequence) {
  c->waiting_ticket = ++last_ticket_;
  c->waiting_sequence = sequence;
  waiting_[c->waiting_ticket] = c;
  return c->waiting_ticket;
}

// Returns the peer that waited under this ticket, and ends its wait; null if
// the peer has gone.
PeerConnection* SocketServer::TakeWaiting(uint64_t ticket) {
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return nullptr;
  PeerConnection* c = it->second;
  waiting_.erase(it);
  c->waiting_ticket = 0;
  return c;
}

void SocketServer::Answer() {
  const PoolService::Answers answers = pool_->TakeAnswers();
  for (const slab::Refusal& refusal : answers.refusals) {
    PeerConnection* c = TakeWaiting(refusal.ticket);
    if (c == nullptr) continue;
    Refuse(c, c->waiting_sequence, RefusalCode::kPoolExhausted,
           WhyRefused(refusal));
  }
  for (const slab::PoolState::Grant& grant : answers.grants) {
    PeerConnection* c = TakeWaiting(grant.ticket);
    if (c == nullptr) {
      ReturnUnseen(grant.engine, grant.lease);
      continue;
    }
    auto answer = abi::MakeMessage<abi::LeaseGrant>(c->waiting_sequence);
    answer.lease = slab::Number(grant.lease);
    answer.slab_count = static_cast<uint32_t>(grant.slabs.size());
    // A former connection of the same process may still have an entry until the
    // server sees that it has ended.
    for (PeerConnection& other : connections_) {
      other.unfetched.erase(grant.lease);
    }
    c->unfetched.insert(grant.lease);
    // If the peer has died, its pidfd reports that, and the lease ends then.
    abi::Send(c->socket.get(), answer);
  }
  for (const backing::Exported& exported : answers.exports) {
    PeerConnection* c = TakeWaiting(exported.ticket);
    if (c != nullptr) SendGranules(c, exported);
  }
}

// Returns a lease that its client never learned of because its connection
// ended.
void SocketServer::ReturnUnseen(EngineId engine, LeaseId lease) {
  // NotFound: the engine has died too, and its slabs are quarantined.
  const absl::Status s = pool_->machine()->Return(engine, lease);
  if (!s.ok()) log::Debug("{}", std::string(s.message()));
}

bool SocketServer::HandleReturn(PeerConnection* c,
                                const abi::ReturnRequest& r) {
  c->unfetched.erase(LeaseId{r.lease});
  const absl::Status s =
      r.lease != 0 ? pool_->machine()->Return(c->engine, LeaseId{r.lease})
                   : GiveUp(c, r.request);
  if (!s.ok()) {
    return Refuse(c, r.header.sequence, RefusalCode::kUnknownLease,
                  std::string(s.message()));
  }
  auto done = abi::MakeMessage<abi::ReturnDone>(r.header.sequence);
  done.lease = r.lease;
  return abi::Send(c->socket.get(), done) == 0;
}

// Notes it for the process's other connections too, since the request may still
// wait unread in the connection on which it was made.
absl::Status SocketServer::GiveUp(PeerConnection* c, uint32_t request) {
  for (PeerConnection& other : connections_) {
    if (&other != c && other.peer.pid == c->peer.pid &&
        other.engine == c->engine) {
      other.given_up = request;
    }
  }
  return pool_->machine()->GiveUp(c->engine, {c->peer.pid, request});
}

bool SocketServer::HandleGranules(PeerConnection* c,
                                  const abi::GranuleRequest& r) {
  if (r.lease == 0) {  // it denotes a view, not a lease
    return Refuse(c, r.header.sequence, RefusalCode::kUnknownLease,
                  "there is no lease 0");
  }
  return ExportGranules(c, r.header.sequence, r.lease, r.first, r.max_count);
}

bool SocketServer::ExportGranules(PeerConnection* c, uint32_t sequence,
                                  uint32_t lease, uint32_t first,
                                  uint32_t max_count) {
  if (c->waiting_ticket != 0 || c->waiting_whole) return Dropped();
  const auto granules = GranulesFor(*c, lease, first, max_count);
  if (!granules.ok()) {
    return Refuse(c, sequence, RefusalCode::kUnknownLease,
                  std::string(granules.status().message()));
  }
  // This is recorded before any process can map the lease.
  if (lease != 0) pool_->machine()->Seen(c->engine, LeaseId{lease});
  c->waiting_lease = lease;
  c->waiting_first = first;
  pool_->Export(Await(c, sequence), *granules);
  return true;
}

// Returns the granules of a lease, or for the peer's view (lease 0), that the
// peer may have.
absl::StatusOr<std::vector<uint32_t>> SocketServer::GranulesFor(
    const PeerConnection& c, uint32_t lease, uint32_t first,
    uint32_t max_count) const {
  const uint32_t count = std::min(max_count, abi::kMaxDescriptorsPerMessage);
  const slab::PoolState& pool = pool_->state();
  return lease == 0 ? pool.ViewGranules(c.engine, c.peer.pid, first, count)
                    : pool.GranulesOf(c.engine, LeaseId{lease}, first, count);
}

void SocketServer::SendGranules(PeerConnection* c,
                                const backing::Exported& exported) {
  const auto granules =
      GranulesFor(*c, c->waiting_lease, c->waiting_first,
                  static_cast<uint32_t>(exported.granules.size()));
  if (!exported.granules.empty() &&
      (!granules.ok() || granules->size() < exported.granules.size())) {
    // The peer has returned the granules in the meantime, and another engine
    // may have them.
    Refuse(c, c->waiting_sequence, RefusalCode::kUnknownLease,
           "the lease ended before its granules were exported");
    return;
  }
  c->unfetched.erase(LeaseId{c->waiting_lease});
  std::vector<int> descriptors;
  for (const driver::Descriptor& granule : exported.granules) {
    descriptors.push_back(granule.get());
  }
  auto batch = abi::MakeMessage<abi::GranuleBatch>(c->waiting_sequence);
  batch.lease = c->waiting_lease;
  batch.first = c->waiting_first;
  batch.count = static_cast<uint32_t>(descriptors.size());
  int sent = ETOOMANYREFS;
  // ETOOMANYREFS: this user has too many descriptors in flight, but fewer may
  // still pass.
  for (; batch.count > 0; batch.count /= 2) {
    sent = abi::Send(c->socket.get(), batch, descriptors.data(), batch.count);
    if (sent != ETOOMANYREFS) return;
  }
  Refuse(c, c->waiting_sequence, RefusalCode::kDriver,
         exported.status.ok()
             ? base::WithErrno("its granules cannot be sent", sent)
             : std::string(exported.status.message()));
}

}  // namespace fineserve::server
