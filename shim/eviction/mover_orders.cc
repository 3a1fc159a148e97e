// The part of Mover that talks with daemons: it connects, reports, waits for
// orders and asks for moves.

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/socket_path.h"
#include "shim/eviction/mover.h"
#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/link/seqpacket.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using abi::Seat;

// From Hello to Welcome, and until an asker has found a daemon.
constexpr int kAnswerMs = 10'000;
constexpr int kListenMs = 60'000;  // between looks at a silent socket
constexpr int kSizesMs = 1'000;    // between looks at what can leave
constexpr int kOwnDaemonMs = 500;  // between looks for this GPU's daemon
constexpr int kLenderMs = 100;     // between looks at whose parameters it reads
constexpr timespec kFindPause = {0, 20'000'000};  // between an asker's tries

}  // namespace

Seat Mover::FindSeat() {
  const FirstRank& first = redirector_->first_rank();
  if (!first.is_known()) return Seat::kWhole;
  if (redirector_->group().in_use()) return Seat::kPool;
  uint8_t gpu[16];
  char name[abi::kNameBytes];
  redirector_->link().CopyIdentity(gpu, name);
  return first.Is(gpu) ? Seat::kWhole : Seat::kRank;
}

// Connects this process to the daemon that gives it orders. A rank takes orders
// even without its own GPU's daemon.
Mover::Daemon Mover::Connect() {
  seat_ = FindSeat();
  if (seat_ == Seat::kWhole) return ConnectOwn();
  if (seat_ == Seat::kRank && socket_.Get() < 0) ConnectOwn();
  const FirstRank& first = redirector_->first_rank();
  orders_sequence_ = 0;
  room_is_needed_ = false;
  return Greet(&orders_, abi::Role::kFollower, first.gpu_uuid(),
               first.engine_name());
}

// Connects to this GPU's daemon. The process must be a member first, because
// its link finds the successor of a lost daemon.
Mover::Daemon Mover::ConnectOwn() {
  sequence_ = 0;
  return JoinedLink().state() == abi::LinkState::kConnected
             ? GreetOwn(&socket_, abi::Role::kMover)
             : Daemon{};
}

// Has the link look for the successor of a lost daemon.
DaemonLink& Mover::JoinedLink() {
  DaemonLink& link = redirector_->link();
  link.Look();
  link.Rejoin();
  if (link.is_due()) {
    uint8_t gpu[16];
    char name[abi::kNameBytes];
    link.CopyIdentity(gpu, name);
    link.Join(gpu, /*reconnect=*/true);
  }
  return link;
}

int Mover::AskFor(Place to, int timeout_ms) {
  const uint64_t until_ms = NowMs() + static_cast<uint64_t>(timeout_ms);
  const uint64_t found_by_ms = std::min(until_ms, NowMs() + kAnswerMs);
  auto request = abi::MakeMessage<abi::MoveRequest>(1);
  request.to = to;
  CheckedDescriptor socket;
  while ((request.engine_id = ConnectAsAsker(&socket)) == 0) {
    if (NowMs() >= found_by_ms || !MayFindDaemon()) {
      return KvError(FS_NO_DAEMON, "there is no daemon that could move it");
    }
    nanosleep(&kFindPause, nullptr);
  }
  const int result = AskAt(socket.Get(), request, until_ms, timeout_ms);
  socket.Close();
  return result;
}

// True if a daemon has been joined, or one that starts can be.
bool Mover::MayFindDaemon() const {
  switch (redirector_->link().state()) {
    case abi::LinkState::kConnected:
    case abi::LinkState::kLost:
    case abi::LinkState::kNoDaemon:
      return true;
    default:
      return false;
  }
}

// Connects to the daemon that this process is a member of, once that daemon
// knows where the process's memory is; a daemon that has just started does not.
// Returns the number of the process's engine there, or 0.
uint32_t Mover::ConnectAsAsker(CheckedDescriptor* socket) {
  redirector_->link().Hurry();
  const DaemonLink::Membership member = JoinedLink().membership();
  if (member.engine_id == 0) return 0;
  const Daemon daemon = GreetOwn(socket, abi::Role::kObserver);
  // A daemon that is not the one that orders only has to refuse.
  if (daemon.epoch == member.epoch &&
      (FindSeat() != Seat::kWhole || IsKnownTo(daemon))) {
    return member.engine_id;
  }
  socket->Close();
  return 0;
}

// `until_ms`: when `timeout_ms` is over.
int Mover::AskAt(int socket, const abi::MoveRequest& request, uint64_t until_ms,
                 int timeout_ms) {
  const bool sent = abi::Send(socket, request) == 0;
  const uint64_t left_ms = until_ms - std::min(NowMs(), until_ms);
  if (sent && WaitReadable(socket, static_cast<int>(left_ms)) != 0) {
    return KvError(FS_STATE, "it is not done after %d ms, and goes on",
                   timeout_ms);
  }
  abi::Received received;
  abi::MoveDone done;
  abi::Refused refused;
  if (!sent || received.ReceiveFrom(socket) != 0) {
    return KvError(FS_NO_DAEMON, "the daemon has ended");
  }
  if (received.As(&done)) return FS_OK;
  return received.As(&refused) && abi::IsTerminated(refused.text)
             ? KvError(FS_REFUSED, "%s", refused.text)
             : KvError(FS_REFUSED, "the daemon is of another release");
}

void Mover::SetKnownTo(Daemon daemon) {
  const MutexLock lock(&known_mutex_);
  known_to_ = daemon;
}

// The process identifies the daemon, too, since a successor that takes over a
// kept pool has its epoch.
bool Mover::IsKnownTo(Daemon daemon) {
  const MutexLock lock(&known_mutex_);
  return daemon.epoch != 0 && known_to_.epoch == daemon.epoch &&
         known_to_.pid == daemon.pid;
}

Mover::Daemon Mover::GreetOwn(CheckedDescriptor* socket, abi::Role role) {
  uint8_t gpu[16];
  char name[abi::kNameBytes];
  redirector_->link().CopyIdentity(gpu, name);
  return Greet(socket, role, gpu, name);
}

Mover::Daemon Mover::Greet(CheckedDescriptor* socket, abi::Role role,
                           const uint8_t (&gpu)[16],
                           const char (&name)[abi::kNameBytes]) {
  auto hello = abi::MakeMessage<abi::Hello>(0);
  hello.role = role;
  hello.pid = static_cast<uint32_t>(getpid());
  memcpy(hello.gpu_uuid, gpu, sizeof(gpu));
  abi::CopyText(hello.engine_name, name);
  char folder[abi::kPathBytes], path[abi::kPathBytes];
  char why[256];
  if (!abi::RuntimeFolder(folder) || !abi::SocketPath(folder, gpu, path)) {
    return {};
  }
  const int fd = ConnectTo(path, kAnswerMs, why, sizeof(why));
  if (fd < 0) return {};
  socket->Adopt(fd);
  abi::Received received;
  abi::Welcome welcome;
  const bool joined = abi::Send(fd, hello) == 0 &&
                      WaitReadable(fd, kAnswerMs) == 0 &&
                      received.ReceiveFrom(fd) == 0 && received.As(&welcome);
  if (joined) return {welcome.epoch, welcome.daemon_pid};
  socket->Close();
  return {};
}

// Counts all memory as pinned if the gate can never close.
ResidentSum Mover::Sizes() const {
  ResidentSum sum = redirector_->resident()->sum();
  if (g_gate.kept_open_by() != nullptr) {
    sum.pinned = sum.here;
    sum.pinned_bytes = sum.here_bytes;
  }
  return sum;
}

bool Mover::Report(abi::Need need) {
  const ResidentSum sum = Sizes();
  redirector_->scoreboard().ShowResident(sum);
  redirector_->scoreboard().ShowGateWaits(g_gate.waits());
  report_.allocations =
      seat_ == Seat::kPool ? redirector_->group().ranks() : sum.here + sum.out;
  report_.moving_bytes = sum.moving_bytes();
  report_.pinned_bytes = sum.pinned_bytes;
  report_.out_bytes =
      report_.place == Place::kDropped ? sum.dropped_bytes : sum.out_bytes;
  report_.lender_pid = lender_.pid;
  report_.frozen_mib = static_cast<uint32_t>(sum.frozen_bytes >> 20);
  if (seat_ == Seat::kRank) {
    report_.need = need == abi::Need::kSizes ? need : abi::Need::kNone;
    SendReport(&socket_, Seat::kLed, &sequence_);
    report_.lacks_room = 0;  // it is this GPU that does
  }
  report_.need = need;
  const bool sent = SendReport(
      &orders(), seat_, seat_ == Seat::kWhole ? &sequence_ : &orders_sequence_);
  EndIfLost();
  report_.need = abi::Need::kNone;
  report_.order = report_.failed = report_.lacks_room = 0;
  report_.why[0] = '\0';
  return sent;
}

// Sends no report to this GPU's own daemon here, since that daemon would take
// the reported place for the answer.
bool Mover::PassOnRoomNeed() {
  if (!room_is_needed_) return true;
  room_is_needed_ = false;
  report_.need = abi::Need::kRoom;
  const bool sent = SendReport(&orders_, seat_, &orders_sequence_);
  report_.need = abi::Need::kNone;
  return sent;
}

void Mover::SayThatNoneOrders() {
  if (seat_ != Seat::kRank) return;
  report_.failed = 1;
  SendReport(&socket_, Seat::kLed, &sequence_);
  report_.failed = 0;
}

bool Mover::SendReport(CheckedDescriptor* to, Seat seat, uint32_t* sequence) {
  report_.header.sequence = ++*sequence;
  report_.seat = seat;
  const int fd = to->Get();
  int kept[1 + abi::kMostStoreFiles];
  uint32_t count = 0;
  // Sends the kept files again in the first report, because the daemon may be a
  // new one.
  if (*sequence == 1 && (seat == Seat::kWhole || seat == Seat::kLed)) {
    while (count < 1 + abi::kMostStoreFiles &&
           (kept[count] = kept_[count].Get()) >= 0) {
      ++count;
    }
  }
  return fd >= 0 && abi::Send(fd, report_, kept, count) == 0;
}

// Handles a message of a rank's own daemon, which may need a move that another
// daemon orders. Connects to the own daemon again if that connection has ended.
void Mover::TendOwn(bool is_readable) {
  abi::Received received;
  if (is_readable &&
      (received.ReceiveFrom(socket_.Get()) != 0 || !NoteNeed(received))) {
    socket_.Close();
  }
  if (socket_.Get() < 0 && ConnectOwn().epoch != 0) {
    SendReport(&socket_, Seat::kLed, &sequence_);
  }
}

// True if the message is an order of the rank's own daemon. The order counts as
// a request to the daemon that gives orders.
bool Mover::NoteNeed(const abi::Received& received) {
  abi::MoveOrder order;
  if (seat_ != Seat::kRank || !received.As(&order)) return false;
  if (order.to == Place::kGpu) g_presence.Ring();
  if (order.to == Place::kHost) room_is_needed_ = true;
  return true;
}

// Reports the bytes that an eviction would free: the daemon evicts only engines
// that free some. Returns false once the connection is over.
bool Mover::ReportSizes() {
  if (seat_ == Seat::kPool || !IsHere()) return true;
  const ResidentSum sum = Sizes();
  const bool same = report_.moving_bytes == sum.moving_bytes() &&
                    report_.pinned_bytes == sum.pinned_bytes;
  return same || Report(abi::Need::kSizes);
}

// Returns true once there is an order; false if the connection is over. Answers
// the bell while it waits.
bool Mover::WaitForOrder(int fd) {
  while (orders().Get() == fd) {
    if (!ReportLender()) return false;
    if (!PassOnRoomNeed() || !ReportSizes()) return false;
    const int own = seat_ == Seat::kRank ? socket_.Get() : -1;
    const bool looks = seat_ == Seat::kRank && own < 0;
    g_presence.OpenBell();  // the program may have closed it
    pollfd polled[3] = {
        {fd, POLLIN, 0}, {g_presence.bell(), POLLIN, 0}, {own, POLLIN, 0}};
    const int result = poll(polled, 3,
                            HasLender() ? kLenderMs
                            : looks     ? kOwnDaemonMs
                            : IsHere()  ? kSizesMs
                                        : kListenMs);
    if (result < 0 && errno != EINTR) return false;
    if (FindSeat() != seat_) return false;
    if (polled[0].revents != 0) return true;
    if (looks || polled[2].revents != 0) TendOwn(polled[2].revents != 0);
    if (polled[1].revents == 0) continue;
    g_presence.AnswerBell();
    if (!IsHere()) {
      if (!Report(abi::Need::kReturn)) return false;
    } else {
      const MutexLock lock(&turn_);
      if (!stopped_) ReturnToView(*real_);
      EndIfLost();
    }
  }
  return false;
}

}  // namespace fineserve::shim
