#include "shim/eviction/mover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/socket_path.h"
#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/host/own_thread.h"
#include "shim/host/thread_state.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using abi::Seat;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;

// Heuristics: limits on a call inside the gate and on the GPU's work. An engine
// that exceeds them is not idle, so it keeps running.
constexpr uint64_t kInsideMs = 10'000;
constexpr int kRestMs = 10'000;
constexpr uint64_t kLeaveMs = 5'000;  // until a block pool has no request
// Limit on the wait until the readers of this process's parameters have their
// own copies; parameters that are still read after that stay on the GPU.
constexpr uint64_t kRecallMs = 5'000;
constexpr uint64_t kAloneMs = 5'000;  // a daemon's restart takes less
constexpr int kAnswerMs = 10'000;     // from Hello to Welcome
constexpr int kListenMs = 60'000;     // between looks at a silent socket
constexpr int kSizesMs = 1'000;       // between looks at what can leave
constexpr int kOwnDaemonMs = 500;     // between looks for this GPU's daemon
constexpr int kLenderMs = 100;  // between looks at whose parameters it reads
constexpr timespec kKnownPause = {0, 5'000'000};  // between looks at known_to_
constexpr timespec kConnectPause = {0,
                                    200'000'000};  // between tries to connect

}  // namespace

void Mover::Start(const Driver& real) {
  if (started_.exchange(true)) return;
  real_ = &real;
  if (StartOwnThread(&Mover::Run, this)) return;
  Warn("cannot start a thread: this engine cannot be evicted");
}

void Mover::Stop() {
  // Waits for a move that is under way.
  const MutexLock lock(&turn_);
  stopped_ = true;
  // No thread is left that would bring the memory back.
  if (g_gate.is_closed()) g_gate.CloseForGood();
}

void Mover::AbandonInChild() {
  socket_.Close();
  orders_.Close();
  CloseKept();
  started_.store(false, std::memory_order_relaxed);
}

void* Mover::Run(void* mover) {
  pthread_setname_np(pthread_self(), "fineserve-move");
  t_gate_visitor.place = GateVisitor::kExempt;
  const ReentryGuard guard;
  static_cast<Mover*>(mover)->Serve();
  return nullptr;
}

void Mover::Serve() {
  report_ = abi::MakeMessage<abi::MoveReport>(0);
  report_.place = Place::kGpu;
  report_.can_rest = 1;
  for (;;) {
    g_presence.OpenBell();
    if (const uint64_t epoch = Connect(); epoch != 0) {
      alone_since_ms_ = 0;
      bool goes_on = Report();
      if (goes_on) known_to_.store(epoch, std::memory_order_relaxed);
      while (goes_on) goes_on = AwaitOrder() && Report();
      known_to_.store(0, std::memory_order_relaxed);
      SayThatNoneOrders();
    }
    orders().Close();
    {
      const MutexLock lock(&turn_);
      if (stopped_) return;
      if (report_.place == Place::kAtRest) {
        may_be_old_ = true;
        GoOn(*real_);
        EndIfLost();
      }
      TendLender();
      EndIfLost();
      HelpAlone();
    }
    if (FindSeat() == seat_) nanosleep(&kConnectPause, nullptr);
  }
}

// Brings an engine that is needed back to the GPU if there is no daemon that
// could refuse it.
void Mover::HelpAlone() {
  const uint64_t now_ms = NowMs();
  if (alone_since_ms_ == 0) alone_since_ms_ = now_ms;
  if (now_ms - alone_since_ms_ < kAloneMs || WaitReadable(g_presence.bell(), 0))
    return;
  g_presence.AnswerBell();
  const bool was_away = !IsHere();
  if (report_.place == Place::kHost && !ComeBack(*real_)) return;
  if (was_away && GoOn(*real_)) {
    Warn("back on the GPU without a daemon, because calls waited for it");
  }
  EndIfLost();
}

// Ends the process if it has lost its memory, because it could neither compute
// nor answer.
void Mover::EndIfLost() {
  if (!lost_) return;
  Warn("%s", report_.why);
  _exit(EXIT_FAILURE);
}

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
uint64_t Mover::Connect() {
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
uint64_t Mover::ConnectOwn() {
  DaemonLink& link = JoinedLink();
  uint8_t gpu[16];
  char name[abi::kNameBytes];
  link.CopyIdentity(gpu, name);
  sequence_ = 0;
  return link.state() == abi::LinkState::kConnected
             ? Greet(&socket_, abi::Role::kMover, gpu, name)
             : 0;
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
  // The next daemon may be just starting, and does not know yet where this
  // process's memory is.
  const uint64_t known_until_ms = std::min(until_ms, NowMs() + kAnswerMs);
  while (!JoinedLink().IsJoinedTo(known_to_.load(std::memory_order_relaxed)) &&
         NowMs() < known_until_ms) {
    nanosleep(&kKnownPause, nullptr);
  }
  DaemonLink& link = redirector_->link();
  auto request = abi::MakeMessage<abi::MoveRequest>(1);
  request.engine_id = link.engine_id();
  request.to = to;
  uint8_t gpu[16];
  char name[abi::kNameBytes];
  link.CopyIdentity(gpu, name);
  CheckedDescriptor socket;
  if (request.engine_id == 0 ||
      !link.IsJoinedTo(Greet(&socket, abi::Role::kObserver, gpu, name)) ||
      abi::Send(socket.Get(), request) != 0) {
    return KvError(FS_NO_DAEMON, "there is no daemon that could move it");
  }
  const uint64_t left_ms = until_ms - std::min(NowMs(), until_ms);
  if (WaitReadable(socket.Get(), static_cast<int>(left_ms)) != 0) {
    return KvError(FS_STATE, "it is not done after %d ms, and goes on",
                   timeout_ms);
  }
  abi::Received received;
  abi::MoveDone done;
  abi::Refused refused;
  if (received.ReceiveFrom(socket.Get()) != 0) {
    return KvError(FS_NO_DAEMON, "the daemon has ended");
  }
  if (received.As(&done)) return FS_OK;
  return received.As(&refused) && abi::IsTerminated(refused.text)
             ? KvError(FS_REFUSED, "%s", refused.text)
             : KvError(FS_REFUSED, "the daemon is of another release");
}

uint64_t Mover::Greet(CheckedDescriptor* socket, abi::Role role,
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
    return 0;
  }
  const int fd = ConnectTo(path, kAnswerMs, why, sizeof(why));
  if (fd < 0) return 0;
  socket->Adopt(fd);
  abi::Received received;
  abi::Welcome welcome;
  const bool joined = abi::Send(fd, hello) == 0 &&
                      WaitReadable(fd, kAnswerMs) == 0 &&
                      received.ReceiveFrom(fd) == 0 && received.As(&welcome);
  if (joined) return welcome.epoch;
  socket->Close();
  return 0;
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
  if (socket_.Get() < 0 && ConnectOwn() != 0) {
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

// Reports the bytes that an eviction would free, since the daemon evicts no
// engine in vain. False if the connection is over.
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
    }
  }
  return false;
}

// False if the connection is over. The result of the order is the next report.
bool Mover::AwaitOrder() {
  const int fd = orders().Get();
  abi::Received received;
  abi::MoveOrder order;
  abi::DropOrder drop;
  if (fd < 0 || !WaitForOrder(fd) || received.ReceiveFrom(fd) != 0) {
    return false;
  }
  if (received.As(&drop)) {
    Obey(drop.order, [&] { return Drop(*real_, drop.lender, drop.bytes); });
    return true;
  }
  if (!received.As(&order)) return false;
  Obey(order.order, [&] { return MoveTo(order.to); });
  return true;
}

bool Mover::Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report_.why, sizeof(report_.why), format, arguments);
  va_end(arguments);
  return false;
}

template <typename Act>
void Mover::Obey(uint32_t order, Act act) {
  const MutexLock lock(&turn_);
  report_.order = order;
  const bool done = stopped_ ? Fail("the program is ending") : act();
  report_.failed = done ? 0 : 1;
}

bool Mover::MoveTo(Place to) {
  switch (to) {
    case Place::kHost:
      return Leave(*real_);
    case Place::kAtRest:
      return report_.place == Place::kHost ? ComeBack(*real_)
                                           : ComeToRestAsOneOfMany(*real_);
    case Place::kGpu:
      return Restore(*real_) && ComeBack(*real_) && GoOn(*real_);
    case Place::kDropped:
      break;  // by a DropOrder alone
  }
  return Fail("an order that this release does not know");
}

// Has the owner of the block pool suspend the view; the owner refuses while
// there are requests.
bool Mover::LeaveView(const Driver& real) {
  EngineView& view = redirector_->view();
  if (view.is_rank() && view.in_use()) return AwaitLeaveAsRank();
  if (redirector_->group().in_use()) {
    g_presence.Ask();
    redirector_->group().WakeWaiter();
    return AwaitLeave();
  }
  if (view.in_use() && view.is_registered()) {
    return Fail("other devices have the addresses of its KV cache");
  }
  if (!view.is_active()) return true;
  g_presence.Ask();
  if (!view.HasSteps()) {
    view.WakeWaiter();
    if (AwaitLeave()) return true;
    if (!view.HasSteps()) return false;
    g_presence.Ask();  // it has begun its first step since
  }
  // The pool is ours.
  if (!g_presence.BeginLeaving()) return false;
  const int result = view.Suspend(real);
  g_presence.Leave(result == FS_OK);
  return result == FS_OK || Fail("%s", KvErrorText());
}

// Waits until this rank has left. The process that runs the block pool has left
// before this order was given, and calls each rank.
bool Mover::AwaitLeaveAsRank() {
  if (!redirector_->first_rank().is_known()) {
    return Fail(
        "it spans GPUs, and the process that runs its block pool cannot leave");
  }
  return g_presence.AwaitLeaveAsRank(kLeaveMs) ||
         Fail("the process that runs its block pool did not let it go");
}

bool Mover::AwaitLeave() {
  return g_presence.AwaitLeave(kLeaveMs) ||
         Fail(
             "it did not become idle within %lu ms: it has requests, or a "
             "block pool that cannot leave",
             kLeaveMs);
}

// Resumes a view that was suspended by leaving. True if there was none, or if
// the view is active again. The keeper then unmaps slabs that leave the pool,
// as they may do for the room that this process is about to ask for.
bool Mover::ResumeView(const Driver& real) {
  if (g_presence.state() != Presence::State::kAway || seat_ == Seat::kPool ||
      redirector_->view().is_active()) {
    return true;
  }
  const int result = redirector_->ResumeView(real);
  report_.lacks_room = result == FS_NO_ROOM ? 1 : 0;
  keeper_->Start(real);  // it also tells a daemon of a view that it refused
  return result == FS_OK || Fail("%s", KvErrorText());
}

// Suspends again a view that was suspended by leaving. False if it is active
// and stays so.
bool Mover::SuspendView(const Driver& real) {
  return g_presence.state() != Presence::State::kAway ||
         !redirector_->view().is_active() ||
         redirector_->view().Suspend(real) == FS_OK ||
         Fail("%s", KvErrorText());
}

// Resumes the view. If it is refused, the next ring of the bell tries again.
bool Mover::ReturnToView(const Driver& real) {
  // A rank may be about to leave.
  if (g_presence.state() != Presence::State::kAway) return true;
  if (!ResumeView(real)) return false;
  g_presence.Return();
  return true;
}

void Mover::CloseKept() {
  for (CheckedDescriptor& one : kept_) one.Close();
}

// The store's answer.
void Mover::Adopt(abi::Received* received) {
  CloseKept();
  const uint32_t count = received->descriptor_count();
  for (uint32_t i = 0; i < count && i < 1 + abi::kMostStoreFiles; ++i) {
    kept_[i].Adopt(received->TakeDescriptor(i));
  }
}

// Hands descriptors of memory to the daemon, many in one message, but sends
// each message early enough for the daemon to work on it while the next
// descriptors are made.
template <typename Message>
class Mover::Batch {
 public:
  Batch(Mover* mover, uint32_t order) : mover_(mover) {
    message_ = abi::MakeMessage<Message>(0);
    message_.order = order;
  }
  ~Batch() { Clear(); }

  // True if some messages were sent, but not the last.
  bool is_open() const { return is_open_; }

  bool Add(uint32_t number, uint64_t bytes, int memory) {
    if ((message_.count == abi::kContentsPerMessage || bytes_ >= kBatchBytes) &&
        !Send(/*is_last=*/false)) {
      return false;
    }
    const int copy = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return mover_->Fail("it has too many open files");
    memory_[message_.count] = copy;
    message_.entries[message_.count++] = {number, 0, bytes};
    ++message_.total;
    bytes_ += bytes;
    return true;
  }

  // Sends the last message and takes the answer to all of the batch's messages.
  // After a failure it closes the connection, since a late answer would be
  // taken for the answer to a later batch.
  template <typename Answer>
  bool End(abi::Received* received, Answer* answer) {
    const bool sent = Send(/*is_last=*/true);
    const int fd = mover_->socket_.Get();
    bool came = false;
    do {
      came = sent && fd >= 0 && WaitReadable(fd, kCopyMs) == 0 &&
             received->ReceiveFrom(fd) == 0;
    } while (came && mover_->NoteNeed(*received));
    if (came && received->As(answer) && answer->order == message_.order &&
        abi::IsTerminated(answer->why)) {
      return true;
    }
    mover_->socket_.Close();
    return false;
  }
  void Clear() {
    for (uint32_t i = 0; i < message_.count; ++i) close(memory_[i]);
    message_.count = 0;
    bytes_ = 0;
  }

 private:
  static constexpr int kCopyMs = 120'000;  // for all, to the host or back
  static constexpr uint64_t kBatchBytes = uint64_t{64} << 20;

  bool Send(bool is_last) {
    message_.header.sequence = ++mover_->sequence_;
    message_.is_last = is_last ? 1 : 0;
    const int fd = mover_->socket_.Get();
    const bool sent =
        fd >= 0 && abi::Send(fd, message_, memory_, message_.count) == 0;
    is_open_ = (is_open_ || sent) && !is_last;
    Clear();
    return sent || mover_->Fail("the daemon is gone");
  }

  Mover* const mover_;
  Message message_;
  bool is_open_ = false;
  uint64_t bytes_ = 0;
  int memory_[abi::kContentsPerMessage];
};

// Hands memory to the daemon's store in such batches. `Base` is a Carrier.
template <typename Base, typename Message>
class Mover::Handing : public Base {
 public:
  bool Hand(uint32_t number, uint64_t bytes, int memory) final {
    return batch_.Add(number, bytes, memory);
  }

 protected:
  Handing(Mover* mover, uint32_t order) : mover_(mover), batch_(mover, order) {}
  ~Handing() = default;

  Mover* const mover_;
  Batch<Message> batch_;
};

// Has the daemon's store copy memory, and finds the copies in the inventory
// that it answers with.
class Mover::ToStore final
    : public Handing<ResidentMemory::Copier, abi::MoveContents> {
 public:
  ToStore(Mover* mover, uint32_t order) : Handing(mover, order) {}
  ~ToStore() {
    if (list_ != nullptr) munmap(list_, list_bytes_);
  }

  bool Finish() override {
    abi::Received received;
    abi::MoveCopied copied;
    if (!batch_.End(&received, &copied)) {
      return mover_->Fail("the daemon has not copied its memory");
    }
    if (copied.failed != 0) return mover_->Fail("%s", copied.why);
    if (received.descriptors_lost()) {
      return mover_->Fail("it has no descriptors left for the store's files");
    }
    mover_->Adopt(&received);
    return MapList() || mover_->Fail("the daemon sent no list of its copies");
  }

  bool Locate(uint32_t number, uint32_t* file, uint64_t* offset) override {
    const auto* const header = static_cast<abi::InventoryHeader*>(list_);
    const auto* const entries =
        reinterpret_cast<const abi::InventoryEntry*>(header + 1);
    for (uint32_t i = 0; i < header->count; ++i) {
      if (entries[i].number != number) continue;
      *file = entries[i].file;
      *offset = entries[i].offset;
      return true;
    }
    return mover_->Fail("the daemon has not copied all of its memory");
  }

 private:
  bool MapList() {
    const int fd = mover_->kept_[0].Get();
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return false;
    list_bytes_ = static_cast<size_t>(st.st_size);
    if (list_bytes_ < sizeof(abi::InventoryHeader)) return false;
    void* const base = mmap(nullptr, list_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return false;
    list_ = base;
    const auto* const header = static_cast<abi::InventoryHeader*>(list_);
    return header->magic == abi::kInventoryMagic &&
           header->count <=
               (list_bytes_ - sizeof(*header)) / sizeof(abi::InventoryEntry);
  }

  void* list_ = nullptr;
  size_t list_bytes_ = 0;
};

// Has the daemon's store fill memory, in one attempt.
class Mover::FromStore final
    : public Handing<ResidentMemory::Carrier, abi::MoveFill> {
 public:
  FromStore(Mover* mover, uint32_t order) : Handing(mover, order) {}

  bool Finish() override {
    abi::Received received;
    abi::MoveFilled filled;
    if (!batch_.End(&received, &filled)) {
      return mover_->Fail("the daemon has not filled its memory");
    }
    mover_->lost_ = filled.result == abi::FillResult::kLost;
    return filled.result == abi::FillResult::kFilled ||
           mover_->Fail("%s", filled.why);
  }

  // Called after a failure. Once it returns, the daemon holds none of the
  // memory that it was handed.
  void Abandon() {
    batch_.Clear();
    abi::Received received;
    abi::MoveFilled ignored;
    if (batch_.is_open()) batch_.End(&received, &ignored);
  }
};

// Has the daemon compare pairs of allocations.
class Mover::Comparer final
    : public Handing<ResidentMemory::Carrier, abi::MoveCompare> {
 public:
  Comparer(Mover* mover, uint32_t order) : Handing(mover, order) {}

  bool Finish() override {
    abi::Received received;
    abi::MoveCompared compared;
    if (!batch_.End(&received, &compared)) {
      return mover_->Fail("the daemon has not compared its parameters");
    }
    return compared.differ == 0 || mover_->Fail("%s", compared.why);
  }
};

// Has the lender's parameters opened, and compared with this process's.
bool Mover::Compare(const Driver& real, uint64_t bytes, uint64_t* got) {
  Comparer comparer(this, report_.order);
  return Collect(real, bytes, &comparer, got) &&
         (*got == 0 || comparer.Finish());
}

// Brings this process from the GPU to rest. After an error it is still on the
// GPU, and keeps running.
bool Mover::ComeToRest(const Driver& real) {
  if (!CanClose() || !Restore(real)) return false;
  if (report_.place != Place::kGpu) return true;
  if (!LeaveView(real)) return false;
  if (!CloseGate(real)) {
    UndoAfterFailure(real, &Mover::ReturnToView);
    return false;
  }
  report_.place = Place::kAtRest;
  may_be_old_ = false;
  return true;
}

// Comes to rest and also notifies exporters. A process that leaves alone does
// not notify them: a silent exporter of another engine would keep it from
// coming back.
bool Mover::ComeToRestAsOneOfMany(const Driver& real) {
  if (!ComeToRest(real)) return false;
  char name[abi::kNameBytes];
  redirector_->CopyEngineName(name);
  redirector_->opened().Rest(name);
  return true;
}

bool Mover::CanClose() {
  const char* const function = g_gate.kept_open_by();
  return function == nullptr ||
         Fail("it calls %s of a later CUDA than this FineServe knows",
              function);
}

// Returns true once this process does not use the device; a process that runs
// the block pool of others never uses it.
bool Mover::CloseGate(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  ResidentMemory& memory = *redirector_->resident();
  if (!memory.EndRest()) {
    return Fail("its work on the GPU has not ended since the last try");
  }
  if (!CanClose()) return false;
  if (!g_gate.Close(kInsideMs)) {
    return g_gate.captures()
               ? Fail("it captures a CUDA graph")
               : Fail(
                     "a call of its to the driver did not return within %lu "
                     "ms",
                     kInsideMs);
  }
  driver::CUcontext contexts[ResidentMemory::kMostContexts];
  const size_t count =
      redirector_->opened().Contexts(contexts, ResidentMemory::kMostContexts);
  char why[sizeof(report_.why)];
  if (!memory.Rest(real, contexts, count, kRestMs, why, sizeof(why))) {
    g_gate.Open();
    return Fail("%s", why);
  }
  memory.EndRest();
  return true;
}

// Moves the memory to the host. After an error everything is where it was, and
// the gate is open if it was.
bool Mover::Leave(const Driver& real) {
  if (report_.place == Place::kHost) return true;
  const bool was_open = IsHere();
  // Restores first; otherwise two processes that read each other's parameters
  // would wait for each other.
  if (!Restore(real)) return false;
  RecallReaders(redirector_->resident(), kRecallMs);
  if (!ComeToRest(real)) return false;
  may_be_old_ = true;
  if (SuspendView(real) && MoveOut(real)) {
    redirector_->opened().Unmap(real);
    report_.place = Place::kHost;
    return true;
  }
  if (was_open) UndoAfterFailure(real, &Mover::GoOn);
  return false;
}

// Calls `undo` after a failure, and keeps the failure's reason, which is
// reported.
void Mover::UndoAfterFailure(const Driver& real,
                             bool (Mover::*undo)(const Driver&)) {
  char why[sizeof(report_.why)];
  memcpy(why, report_.why, sizeof(why));
  if (!(this->*undo)(real)) {
    Warn("after a move that failed: %s", report_.why);
  }
  memcpy(report_.why, why, sizeof(why));
}

bool Mover::MoveOut(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  report_.why[0] = '\0';
  ToStore copier(this, report_.order);
  const CUresult result = redirector_->resident()->Evict(real, &copier);
  if (result == CUDA_SUCCESS) return true;
  return report_.why[0] == '\0' &&
         Fail("its memory could not be handed over: CUDA error %d",
              static_cast<int>(result));
}

// Brings the memory back to the GPU, at rest. The view comes first, since it
// may be refused: its floor may have been promised to others. After an error
// all memory is still out.
bool Mover::ComeBack(const Driver& real) {
  if (report_.place != Place::kHost) return true;
  if (!ResumeView(real)) return false;
  if (!MoveIn(real)) {
    UndoAfterFailure(real, &Mover::SuspendView);
    return false;
  }
  report_.place = Place::kAtRest;
  return true;
}

// Makes this process run again from rest. After an error it is at rest, and the
// gate is closed.
bool Mover::GoOn(const Driver& real) {
  if (IsHere()) return true;
  char why[sizeof(report_.why)];
  const OpenedMemory::Back back =
      redirector_->opened().Return(real, may_be_old_, why, sizeof(why));
  lost_ = lost_ || back == OpenedMemory::Back::kLost;
  if (back != OpenedMemory::Back::kHere) return Fail("%s", why);
  if (seat_ != Seat::kPool) g_gate.Open();
  report_.place = Place::kGpu;
  if (!ReturnToView(real)) Warn("its view is still away: %s", report_.why);
  return true;
}

bool Mover::MoveIn(const Driver& real) {
  if (seat_ == Seat::kPool) return true;
  ResidentMemory& memory = *redirector_->resident();
  int files[abi::kMostStoreFiles];
  uint32_t count = 0;
  while (count < abi::kMostStoreFiles &&
         (files[count] = kept_[1 + count].Get()) >= 0) {
    ++count;
  }
  const uint64_t bytes = memory.sum().out_bytes;
  bool daemon_fills = socket_.Get() >= 0;
  if (bytes != 0 && count == 0 && !daemon_fills) {
    return Fail("the program has closed the store's descriptors");
  }
  const auto attempt = [&] {
    FromStore filler(this, report_.order);
    const CUresult result =
        memory.Activate(real, {files, count, daemon_fills ? &filler : nullptr},
                        [&](const Redirection& range) {
                          return redirector_->peers().Open(real, range);
                        });
    if (result != CUDA_SUCCESS) filler.Abandon();
    return result;
  };
  const auto attempt_with_room = [&] {
    report_.why[0] = '\0';
    return redirector_->TryWithRoom(bytes, attempt(), attempt);
  };
  CUresult result = attempt_with_room();
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
      daemon_fills && !lost_) {
    Warn("fineserved cannot fill its memory (%s): it does so itself",
         report_.why[0] != '\0' ? report_.why : "it cannot be handed over");
    daemon_fills = false;
    result = attempt_with_room();
  }
  if (result == CUDA_SUCCESS) return true;
  char size[abi::kByteSizeText];
  abi::FormatByteSize(bytes, size);
  report_.lacks_room = result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
  if (report_.why[0] != '\0') return false;
  return result == CUDA_ERROR_OUT_OF_MEMORY
             ? Fail("the GPU has no room for its %s", size)
             : Fail("its memory could not be put back: CUDA error %d",
                    static_cast<int>(result));
}

}  // namespace fineserve::shim
