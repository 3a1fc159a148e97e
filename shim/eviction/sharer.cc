#include "shim/eviction/sharer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/share_messages.h"
#include "daemon/contract/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/host/own_thread.h"
#include "shim/host/thread_state.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_INVALID_VALUE;
using driver::CUDA_SUCCESS;
using driver::CUresult;

constexpr int kLendingMs = 500;    // between looks at who has memory open
constexpr int kUnlentMs = 60'000;  // while no process has
constexpr int kRequestMs = 1'000;  // a request follows its connection at once
constexpr timespec kListenPause = {0, 200'000'000};  // between tries to listen

}  // namespace

bool Sharer::Start(const Driver& real) {
  const MutexLock lock(&mutex_);
  if (started_) return true;
  const int listener = ListenAs(name_);
  if (listener < 0) return false;
  socket_.Adopt(listener);
  real_ = &real;
  started_ = StartOwnThread(&Sharer::Run, this);
  if (!started_) socket_.Close();
  return started_;
}

abi::ShareAddress Sharer::Address() const {
  abi::ShareAddress address = {
      abi::ProcessImage(getpid()), static_cast<uint32_t>(getpid()), 0, {}};
  memcpy(address.socket, name_, sizeof(address.socket));
  return address;
}

void Sharer::Stop() {
  const MutexLock lock(&turn_);
  stopped_ = true;
}

void Sharer::AbandonInChild() { socket_.Close(); }

// All addresses within an allocation give the same handle.
CUresult Sharer::MakeHandle(const Driver& real, driver::CUipcMemHandle* handle,
                            driver::CUdeviceptr address,
                            const Original& original) {
  Redirection range;
  if (!redirector_->queries().Find(address, &range) || !range.is_resident) {
    return redirector_->ShareAddress(real.entry, abi::Hook::kIpcGetMemHandle,
                                     address, CUDA_ERROR_INVALID_VALUE,
                                     original);
  }
  abi::IpcHandle made = {};
  if (handle == nullptr || !redirector_->resident()->Share(range.base, &made)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!Start(real)) {
    Warn(
        "cuIpcGetMemHandle failed: cannot start a thread that listens "
        "(raise the limits of processes and open files)");
    return driver::CUDA_ERROR_OPERATING_SYSTEM;
  }
  const abi::ShareAddress own = Address();
  made.magic = abi::IpcHandle::kMagic;
  made.pid = own.pid;
  made.image = own.image;
  memcpy(made.socket, own.socket, sizeof(made.socket));
  static_assert(sizeof(made) == sizeof(*handle));
  memcpy(handle, &made, sizeof(made));
  return CUDA_SUCCESS;
}

void* Sharer::Run(void* sharer) {
  pthread_setname_np(pthread_self(), "fineserve-ipc");
  t_gate_visitor.place = GateVisitor::kExempt;
  const ReentryGuard guard;
  static_cast<Sharer*>(sharer)->Serve();
  return nullptr;
}

// Listens again if its socket is gone, since a program may close all
// descriptors.
void Sharer::Serve() {
  ResidentMemory& memory = *redirector_->resident();
  uint64_t looked_ms = 0;
  for (bool lends = false;;) {
    int listener = socket_.Get();
    if (listener < 0 && (listener = ListenAs(name_)) >= 0) {
      socket_.Adopt(listener);
    }
    if (listener < 0) nanosleep(&kListenPause, nullptr);
    const bool asked =
        listener >= 0 &&
        WaitReadable(listener, lends ? kLendingMs : kUnlentMs) == 0 &&
        socket_.Get() == listener;
    const driver::Descriptor peer(
        asked ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1);
    // Accepting fails, for example, in a program without a free descriptor.
    if (asked && !peer.valid()) nanosleep(&kListenPause, nullptr);
    const MutexLock lock(&turn_);
    if (stopped_) return;
    if (peer.valid()) {
      Answer(peer.get());
      lends = true;  // for all that is known until the next look
    }
    if (memory.is_moving()) continue;
    if (NowMs() >= looked_ms + kLendingMs) {
      lends = memory.TakeBackFromEnded();
      looked_ms = NowMs();
    }
    redirector_->scoreboard().ShowResident(memory.sum());
  }
}

void Sharer::Answer(int fd) {
  ucred credentials;
  abi::Received received;
  if (!PeerOf(fd, &credentials) || WaitReadable(fd, kRequestMs) != 0 ||
      received.ReceiveFrom(fd) != 0) {
    return;
  }
  const ResidentMemory::Borrower peer = {credentials.pid,
                                         abi::ProcessImage(credentials.pid)};
  abi::OpenRequest open;
  abi::CloseRequest close;
  abi::RestRequest rest;
  if (received.As(&open)) Open(fd, peer, open);
  if (received.As(&close)) Close(fd, peer, close);
  if (received.As(&rest)) NoteRest(fd, peer, rest);
  abi::ReadRequest read;
  abi::EndReadRequest end_read;
  abi::RecallRequest recall;
  if (received.As(&read)) Lend(fd, peer, read);
  if (received.As(&end_read)) {
    redirector_->resident()->EndReading(peer);
    abi::Send(fd, abi::MakeMessage<abi::EndReadDone>(end_read.header.sequence));
  }
  if (received.As(&recall)) {
    redirector_->resident()->Recall();
    g_presence.Ring();
    abi::Send(fd, abi::MakeMessage<abi::RecallDone>(recall.header.sequence));
  }
}

// Lends parameters. The reader reports the address at which it listens; the
// kernel vouches for its pid.
void Sharer::Lend(int fd, const ResidentMemory::Borrower& peer,
                  const abi::ReadRequest& request) {
  auto answer = abi::MakeMessage<abi::ReadAnswer>(request.header.sequence);
  int memory[abi::kLentPerAnswer];
  uint32_t lent = 0;
  if (request.reader.pid == static_cast<uint32_t>(peer.pid)) {
    lent = redirector_->resident()->LendParameters(*real_, peer, request,
                                                   &answer, memory);
  } else {
    answer.result = abi::ReadResult::kUnnamed;
  }
  const bool lends = answer.result == abi::ReadResult::kLent;
  abi::Send(fd, answer, memory, lends ? lent : 0);
  for (uint32_t i = 0; i < lent; ++i) close(memory[i]);
}

void Sharer::Open(int fd, const ResidentMemory::Borrower& peer,
                  const abi::OpenRequest& request) {
  auto answer = abi::MakeMessage<abi::OpenAnswer>(request.header.sequence);
  ResidentMemory::Lent lent;
  answer.result =
      redirector_->resident()->Lend(*real_, request.handle, peer, &lent);
  answer.bytes = lent.bytes;
  answer.departures = lent.departures;
  if (answer.result == abi::OpenResult::kAway) g_presence.Ring();
  const driver::Descriptor owned(lent.memory);
  abi::Send(fd, answer, &lent.memory, owned.valid() ? 1 : 0);
}

void Sharer::Close(int fd, const ResidentMemory::Borrower& peer,
                   const abi::CloseRequest& request) {
  redirector_->resident()->TakeBack(request.handle, peer);
  abi::Send(fd, abi::MakeMessage<abi::CloseDone>(request.header.sequence));
}

// Notes that the peer rests. Only a process of the same engine may rest,
// because these processes leave and come back together. For a process of
// another engine this one would wait, and no request of its own would bring
// that process back.
void Sharer::NoteRest(int fd, const ResidentMemory::Borrower& peer,
                      const abi::RestRequest& request) {
  auto answer = abi::MakeMessage<abi::RestAnswer>(request.header.sequence);
  char name[abi::kNameBytes];
  redirector_->CopyEngineName(name);
  const bool rests = strncmp(name, request.engine_name, sizeof(name)) == 0 &&
                     redirector_->resident()->NoteRest(request.handle, peer);
  answer.result = rests ? abi::RestResult::kRests : abi::RestResult::kStays;
  abi::Send(fd, answer);
}

}  // namespace fineserve::shim
