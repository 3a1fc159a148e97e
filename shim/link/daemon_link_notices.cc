// The part of DaemonLink that waits for nothing: notices, and what has ended.

#include <errno.h>

#include "shim/link/daemon_link.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {

using abi::LinkState;
using abi::Received;

DaemonLink::Turn::Turn(DaemonLink* link) : link_(link) { link->mutex_.Lock(); }

DaemonLink::Turn::~Turn() {
  link_->mutex_.Unlock();
  link_->TellEnds();
}

// Sends without waiting, and returns an errno: EAGAIN if the socket is full.
template <typename Message>
int DaemonLink::SendNumbered(Message message) {
  message.header.sequence = ++sequence_;
  const int fd = socket_.Get();
  const int error = fd < 0 ? EBADF : SendAtOnce(fd, &message, sizeof(message));
  if (error != 0 && error != EAGAIN && error != ENOBUFS) {
    Lose(error == EBADF ? "its socket was closed by this program"
                        : "it disconnected");
  }
  return error;
}

void DaemonLink::Return(uint32_t lease, uint64_t epoch) {
  if (epoch != epoch_.load(std::memory_order_relaxed)) return;
  ends_.Add(lease);
  TellEnds();
}

// A thread that finds the mutex taken leaves the ends to its owner, which comes
// here when it has unlocked it.
void DaemonLink::TellEnds() {
  bool any = true;
  while (any && has_unconfirmed_ends() && mutex_.TryLock()) {
    any = SendEnds();
    mutex_.Unlock();
  }
}

// True if any end was sent or confirmed.
bool DaemonLink::SendEnds() {
  if (!has_unconfirmed_ends()) return false;
  const int fd = socket_.Get();
  if (fd < 0) return Lose("its socket was closed by this program"), false;
  const bool confirmed = ConfirmEnds(fd);
  return SendUntold() || confirmed;
}

// True if any end was sent.
bool DaemonLink::SendUntold() {
  bool any = false;
  UnconfirmedEnds::What ended;
  while (state() == LinkState::kConnected && ends_.Next(&ended)) {
    auto back = abi::MakeMessage<abi::ReturnRequest>(0);
    back.lease = ended.lease;
    back.request = ended.request;
    auto close = abi::MakeMessage<abi::CloseViewRequest>(0);
    close.suspended = ended.lease == UnconfirmedEnds::kViewsLeases ? 1 : 0;
    const bool whole =
        ended.request == 0 &&
        (ended.lease == UnconfirmedEnds::kView || close.suspended == 1);
    const int error = whole ? SendNumbered(close) : SendNumbered(back);
    if (error != 0) break;
    ends_.Told(sequence_);
    any = true;
  }
  return any;
}

// Takes the answers that have come. Each follows what it confirms, in order.
bool DaemonLink::ConfirmEnds(int fd) {
  bool any = false;
  Received received;
  while (ends_.AwaitsAnswers() && WaitReadable(fd, 0) == 0) {
    if (received.ReceiveFrom(fd) != 0) {
      Lose("it disconnected");
    } else if (received.header() == nullptr ||
               !ends_.Confirm(received.header()->sequence)) {
      Lose("it answered another request");
    } else {
      any = true;
    }
  }
  return any;
}

template <typename Message>
Notice DaemonLink::Tell(uint64_t epoch, Message message) {
  if (!mutex_.TryLock()) return Notice::kBusy;
  Notice outcome = Notice::kLost;
  if (state() == LinkState::kConnected && epoch == welcome_.epoch) {
    const int error = SendNumbered(message);
    outcome = error == 0                         ? Notice::kSent
              : state() == LinkState::kConnected ? Notice::kBusy
                                                 : Notice::kLost;
  }
  mutex_.Unlock();
  TellEnds();
  return outcome;
}

Notice DaemonLink::TellWant(uint64_t epoch, uint32_t slabs) {
  auto notice = abi::MakeMessage<abi::WantNotice>(0);
  notice.wanted = slabs;
  return Tell(epoch, notice);
}

Notice DaemonLink::TellReturn(uint64_t epoch, const abi::ReturnNotice& notice) {
  return Tell(epoch, notice);
}

bool DaemonLink::FindTable(const void** table, size_t* bytes) {
  if (!mutex_.TryLock()) return false;
  const bool found = table_.base() != nullptr && table_.IsSealed();
  *table = table_.base();
  *bytes = table_.bytes();
  mutex_.Unlock();
  TellEnds();
  return found;
}

void DaemonLink::Look() {
  if (!mutex_.TryLock()) return;
  const int fd = socket_.Get();
  if (state() == LinkState::kConnected && (fd < 0 || !IsOpen(fd))) {
    Lose("it disconnected");
  }
  mutex_.Unlock();
  TellEnds();
}

}  // namespace fineserve::shim
