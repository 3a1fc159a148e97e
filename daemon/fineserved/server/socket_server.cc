#include "daemon/fineserved/server/socket_server.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/fineserved/server/peer_connection.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::server {

using abi::RefusalCode;

// A process whose exit the loop watches for.
struct SocketServer::Member {
  driver::Descriptor pidfd;
  std::unique_ptr<EventSource> source;
  uint64_t image;  // ProcessImage
};

namespace {

// Datagrams handled per wake-up, so that one peer cannot occupy the loop.
constexpr int kDatagramsPerWake = 64;
// Pause before the next try when no descriptor is left for a connection.
constexpr uint64_t kAcceptRestUs = 100'000;

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
      rules_of_(std::move(rules_of)),
      moves_(clock) {}

SocketServer::~SocketServer() = default;

void SocketServer::Listen(driver::Descriptor listener) {
  listener_ = std::move(listener);
  const auto begin = [this] {
    listener_source_ = loop_->OnReadable(listener_.get(), [this] { Accept(); });
  };
  accept_alarm_ = loop_->OnAlarm(begin);
  begin();
}

void SocketServer::RestFromAccepting() {
  if (!std::exchange(lacks_descriptors_, true)) {
    log::Error(
        "engines that connect now have to wait, since too few descriptors are "
        "left; raise the limit of open files (LimitNOFILE)");
  }
  listener_source_.reset();
  accept_alarm_->Set(clock_->NowNs() / 1000 + kAcceptRestUs);
}

void SocketServer::Accept() {
  if (!driver::MayAccept(listener_.get())) return RestFromAccepting();
  lacks_descriptors_ = false;
  driver::Descriptor socket(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  PeerConnection& c = connections_.emplace_back();
  c.self = std::prev(connections_.end());
  c.socket = std::move(socket);
  socklen_t length = sizeof(c.peer);
  getsockopt(c.socket.get(), SOL_SOCKET, SO_PEERCRED, &c.peer, &length);
  c.source = loop_->OnReadable(c.socket.get(), [this, &c] { OnReadable(&c); });
}

void SocketServer::OnReadable(PeerConnection* c) {
  abi::Received received;
  for (int i = 0; i < kDatagramsPerWake; ++i) {
    const int error = received.ReceiveFrom(c->socket.get());
    if (error == EAGAIN) return;
    if (error != 0 || !Handle(c, &received)) {
      const pid_t pid = c->peer.pid;
      Close(c);
      return EndFormerImage(pid, abi::ProcessImage(pid));
    }
  }
}

void SocketServer::Close(PeerConnection* c) {
  // If the lease is granted later, Deliver returns it.
  if (c->waiting_ticket != 0) {
    waiting_.erase(c->waiting_ticket);
    pool_->machine()->Cancel(c->waiting_ticket);
  }
  for (slab::LeaseId lease : c->unfetched) ReturnUnseen(c->engine, lease);
  if (c->is_mover) {
    needed_ns_.erase(c->engine);
    failures_.erase(c->engine);
    if (c->copying != 0) store_->DropFill(HolderOf(c->peer.pid), c->copying);
  }
  const uint64_t number = NumberOf(c);
  connections_.erase(c->self);
  moves_.Gone(MoveBook::MoverId{number});
  moves_.AskerGone(MoveBook::AskerId{number});
  CarryOutMoves();
}

bool SocketServer::Refuse(PeerConnection* c, uint32_t sequence,
                          RefusalCode code, const std::string& text) {
  auto refused = abi::MakeMessage<abi::Refused>(sequence);
  refused.code = code;
  refused.daemon_abi_version = abi::kAbiVersion;
  abi::CopyText(refused.text, text.c_str());
  return abi::Send(c->socket.get(), refused) == 0;
}

bool SocketServer::Dropped() {
  slab::Count(table_->counters().messages_dropped);
  return false;
}

bool SocketServer::Handle(PeerConnection* c, abi::Received* received) {
  const abi::MessageHeader* header = received->header();
  if (header == nullptr) {
    Dropped();
    log::Warning("disconnecting pid {}: it sent {} bytes that are no message",
                 c->peer.pid, received->bytes());
    return false;
  }
  if (!c->greeted) return HandleHello(c, *received);
  if (received->sender().pid != c->peer.pid) {
    Dropped();
    log::Warning("ignoring a message of pid {} on the connection of pid {}",
                 received->sender().pid, c->peer.pid);
    return true;
  }
  if (c->scoreboard.valid()) {
    // The peer sends a request, so it has mapped its scoreboard. From now on,
    // no other process may map that scoreboard writable.
    if (!c->scoreboard.SealAgainstWriters()) {
      log::Warning("pid {}: {}", c->peer.pid,
                   base::WithErrno("cannot seal its scoreboard"));
    }
    c->scoreboard = {};
  }
  if (c->is_mover) return HandleMover(c, received);
  if (header->type == abi::MessageType::kCarryRequest) {
    return HandleCarry(c, received);
  }
  bool stays = false;
  const auto is = [&]<typename Message>(bool (SocketServer::*handle)(
                      PeerConnection*, const Message&)) {
    Message message;
    if (!received->As(&message)) return false;
    stays = (this->*handle)(c, message);
    return true;
  };
  const bool is_observer = c->engine == slab::kNoEngine;
  const bool known =
      is_observer
          ? is(&SocketServer::HandleLimit) || is(&SocketServer::HandleMove) ||
                is(&SocketServer::HandleDrop) ||
                is(&SocketServer::HandleStore) || is(&SocketServer::HandleOffer)
          : (is(&SocketServer::HandleWant) ||
             is(&SocketServer::HandleReturnNotice) ||
             is(&SocketServer::HandleRule) || is(&SocketServer::HandleRoom) ||
             is(&SocketServer::HandleLease) ||
             is(&SocketServer::HandleGranules) ||
             is(&SocketServer::HandleReturn) || is(&SocketServer::HandleView) ||
             is(&SocketServer::HandlePoolGranules) ||
             is(&SocketServer::HandleActivate) ||
             is(&SocketServer::HandleRunPool) ||
             is(&SocketServer::HandleCloseView));
  if (known) return stays;
  Dropped();
  Refuse(c, header->sequence, RefusalCode::kMalformed,
         "this peer may not make this request");
  return false;
}

// A pid can be reused between Hello and pidfd_open only if the sender has died.
// In that case no later message is accepted, because each must carry that pid
// on this very socket. So no slab is ever leased under a wrong pidfd.
absl::Status SocketServer::Watch(pid_t pid, uint64_t image) {
  if (members_.count(pid) != 0) return absl::OkStatus();
  driver::Descriptor pidfd = abi::OpenPidfd(pid, abi::StartOf(image));
  if (!pidfd.valid()) {
    return base::Cannot("watch pid", absl::StrCat(pid));
  }
  OnExit(pid, std::move(pidfd), image);
  return absl::OkStatus();
}

void SocketServer::OnExit(pid_t pid, driver::Descriptor pidfd, uint64_t image) {
  Member& member = members_[pid];
  member.source = loop_->OnReadable(pidfd.get(), [this, pid] {
    members_.erase(pid);
    End(pid);
  });
  member.pidfd = std::move(pidfd);
  member.image = image;
}

// A process that now runs another program (exec) has closed its connections and
// left its context. The driver knows both programs by one pid, so it is asked
// at once, before the new program has a context.
void SocketServer::EndFormerImage(pid_t pid, uint64_t image) {
  const auto member = members_.find(pid);
  // If the image is unknown, so is the rest: the process may have ended.
  if (member == members_.end() || image == 0) return;
  uint64_t& known = member->second.image;
  if (abi::IsSameImage(image, known)) {
    known = std::max(image,
                     known);  // keeps the start of the stack, if either has it
    return;
  }
  known = image;
  log::Info("pid {} runs another program now", pid);
  End(pid);
}

// Called when the process, or the program that it ran, has ended, and with it
// everything that mapped our memory.
void SocketServer::End(pid_t pid) {
  pool_->Exited(pid);
  if (store_ != nullptr) store_->Forget(HolderOf(pid));
  CloseMembers(pid);
}

// Closes the connections of an exited member, which may have left a request,
// here or unread in its socket. That request must not be served: the engine may
// be gone, and its lease would never be returned.
void SocketServer::CloseMembers(pid_t pid) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    PeerConnection& c = *it++;  // Close erases it
    if (c.peer.pid == pid && c.engine != slab::kNoEngine) Close(&c);
  }
}

// A member that cannot be watched counts as living, and keeps its slabs, unless
// it has ended.
void SocketServer::WatchMembers() {
  for (const slab::PoolState::Member& member : pool_->state().Members()) {
    driver::Descriptor pidfd =
        abi::OpenPidfd(member.pid, abi::StartOf(member.image));
    if (pidfd.valid()) {
      OnExit(member.pid, std::move(pidfd), member.image);
      EndFormerImage(member.pid, abi::ProcessImage(member.pid));
    } else if (errno == ESRCH) {
      pool_->Exited(member.pid);
    } else {
      log::Error("pid {}: {}", member.pid, base::WithErrno("cannot watch it"));
    }
  }
}

}  // namespace fineserve::server
