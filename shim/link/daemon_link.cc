#include "shim/link/daemon_link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/socket_path.h"
#include "shim/host/environment.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {
namespace {

using abi::LinkState;
using abi::Received;

// The descriptors of a Welcome to a member.
constexpr uint32_t kTableDescriptor = 0;
constexpr uint32_t kScoreboardDescriptor = 1;
constexpr uint32_t kWelcomeDescriptors = 2;

// Heuristic: a driver needs less to tear a context down.
constexpr int kMostMs = 2'000;

bool IsSocket(const char* name) {
  const char* dot = strrchr(name, '.');
  return dot != nullptr && strcmp(dot, ".sock") == 0;
}

// Connects and waits for an answer. Any answer, or the end of the connection,
// ends the wait.
void AwaitAnswer(const char* path) {
  char why[abi::kPathBytes + 128];
  const int fd = ConnectTo(path, kMostMs, why, sizeof(why));
  if (fd < 0) return;
  auto hello = abi::MakeMessage<abi::Hello>(1);
  hello.role = abi::Role::kObserver;
  hello.pid = static_cast<uint32_t>(getpid());
  if (SendAtOnce(fd, &hello, sizeof(hello)) == 0) WaitReadable(fd, kMostMs);
  close(fd);
}

}  // namespace

void KeptTable::Keep(int fd) {
  struct stat st;
  base_ = nullptr;
  bytes_ = 0;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    const auto bytes = static_cast<size_t>(st.st_size);
    void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) {
      base_ = mapped;
      bytes_ = bytes;
    }
  }
  descriptor_.Close();
  descriptor_.Adopt(fd);
}

bool KeptTable::IsSealed() const {
  const int seals = fcntl(descriptor_.Get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

void DaemonLink::SetState(LinkState state) {
  // Release: publishes the scoreboard, the sizes and the GPU. Pairs with the
  // acquire in state().
  state_.store(state, std::memory_order_release);
}

LinkState DaemonLink::Join(const uint8_t (&gpu_uuid)[16], bool reconnect) {
  // This is set before the lock is taken, because a process forked while the
  // lock is held must find itself engaged.
  engaged_.store(true, std::memory_order_relaxed);
  const Turn turn(this);
  const LinkState before = state();
  const bool first = before == LinkState::kNotTried;
  if (first) memcpy(gpu_uuid_, gpu_uuid, sizeof(gpu_uuid_));
  // One daemon serves one GPU, and a process joins one daemon.
  if (memcmp(gpu_uuid_, gpu_uuid, sizeof(gpu_uuid_)) != 0) {
    return LinkState::kNoDaemon;
  }
  const bool none =
      before == LinkState::kLost || before == LinkState::kNoDaemon;
  const bool again = none && reconnect && IsPast(retry_at_ms_);
  if (!first && !again) return before;
  const uint64_t began_ms = NowMs();
  if (Meet()) return state();
  socket_.Close();
  Pause(NowMs() - began_ms);
  if (first || (refused_ && before == LinkState::kNoDaemon)) PassThrough();
  return state();
}

bool DaemonLink::IsPast(uint64_t ms) { return NowMs() >= ms; }

// Waits before the next try. The previous try took `tried_ms` and found no
// daemon.
void DaemonLink::Pause(uint64_t tried_ms) {
  const auto most = static_cast<uint64_t>(timeouts_.reconnect_pause_ms);
  pause_ms_ = std::min(std::max({2 * pause_ms_, most / 100, tried_ms}), most);
  retry_at_ms_ = NowMs() + pause_ms_;
}

void DaemonLink::Rejoin() {
  if (state() != LinkState::kLost) return;
  uint8_t gpu[16];
  {
    const Turn turn(this);
    memcpy(gpu, gpu_uuid_, sizeof(gpu));
  }
  Join(gpu, /*reconnect=*/true);
}

bool DaemonLink::Serves(const uint8_t (&gpu_uuid)[16]) {
  const Turn turn(this);
  return memcmp(gpu_uuid_, gpu_uuid, sizeof(gpu_uuid_)) == 0;
}

// Tries again if a daemon ends before it has answered, since another daemon may
// follow it, which listens at the same socket.
bool DaemonLink::Meet() {
  constexpr timespec kBrief = {0, 1'000'000};
  const uint64_t until_ms = NowMs() + static_cast<uint64_t>(PatienceMs());
  while (!MeetOnce()) {
    if (!has_ended_ || IsPast(until_ms)) return false;
    nanosleep(&kBrief, nullptr);
  }
  return true;
}

bool DaemonLink::MeetOnce() {
  refused_ = has_ended_ = false;
  char folder[abi::kPathBytes];
  char path[abi::kPathBytes];
  if (!abi::RuntimeFolder(folder) ||
      !abi::SocketPath(folder, gpu_uuid_, path)) {
    snprintf(reason_, sizeof(reason_), "the runtime folder's path is too long");
    return false;
  }
  abi::CopyText(path_, path);
  const int fd = ConnectTo(path_, PatienceMs(), reason_, sizeof(reason_));
  if (fd < 0) return false;
  socket_.Adopt(fd);
  return SayHello();
}

bool DaemonLink::SayHello() {
  auto hello = abi::MakeMessage<abi::Hello>(0);
  hello.role = abi::Role::kMember;
  hello.pid = static_cast<uint32_t>(getpid());
  memcpy(hello.gpu_uuid, gpu_uuid_, sizeof(hello.gpu_uuid));
  if (name_[0] == '\0') EngineName(name_);
  abi::CopyText(hello.engine_name, name_);
  Received received;
  abi::Welcome welcome;
  if (Ask(hello, &welcome, &received, PatienceMs()) != Exchange::kOk) {
    return false;
  }
  if (Accept(welcome, &received)) return true;
  snprintf(reason_, sizeof(reason_),
           received.descriptors_lost()
               ? "this process may not take the descriptors of the daemon at "
                 "%s: raise its limit of open files; under SELinux, give it "
                 "the daemon's label"
               : "the daemon at %s sent an unusable welcome",
           path_);
  return false;
}

bool DaemonLink::Accept(const abi::Welcome& welcome, Received* received) {
  if (!IsUsable(welcome) ||
      received->descriptor_count() != kWelcomeDescriptors ||
      !scoreboard_->Adopt(received->TakeDescriptor(kScoreboardDescriptor),
                          welcome.epoch, welcome.engine_id)) {
    return false;
  }
  table_.Keep(received->TakeDescriptor(kTableDescriptor));
  if (!FetchRules(welcome.rule_count)) return false;
  // Drops the ends of an older daemon's leases, which this daemon does not
  // know.
  if (welcome.epoch != welcome_.epoch) ends_.Clear();
  welcome_ = welcome;
  epoch_.store(welcome.epoch, std::memory_order_relaxed);
  connections_.fetch_add(1, std::memory_order_relaxed);
  pause_ms_ = 0;
  if (!keep_declared_) {
    declared_->Set(welcome.declared_sizes, welcome.declared_size_count);
  }
  scoreboard_->SetLink(LinkState::kConnected, nullptr);
  SetState(LinkState::kConnected);
  return true;
}

bool DaemonLink::FetchRules(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    auto request = abi::MakeMessage<abi::RuleRequest>(0);
    request.index = i;
    abi::RuleAnswer answer = {};
    Received received;
    if (Ask(request, &answer, &received, PatienceMs()) != Exchange::kOk ||
        answer.index != i) {
      return false;
    }
    fetched_[i] = answer.rule;
  }
  return rules_->Set(fetched_, count);
}

void DaemonLink::PassThrough() {
  const LinkState state = refused_ ? LinkState::kRefused : LinkState::kNoDaemon;
  scoreboard_->CreateOwn();
  scoreboard_->SetLink(state, reason_);
  SetState(state);
  char hint[80] = "";
  if (!refused_) {
    char uuid[41];
    abi::FormatGpuUuid(gpu_uuid_, uuid);
    snprintf(hint, sizeof(hint), " (start: fineserved --gpu %s)", uuid);
  }
  Warn("%s; this process runs without FineServe%s", reason_, hint);
}

void DaemonLink::WarnOfLoss() {
  Warn(
      "%s; leased memory stays mapped, and new KV allocations use the driver's "
      "memory",
      reason_);
}

Exchange DaemonLink::Lose(const char* why) {
  snprintf(reason_, sizeof(reason_), "lost the daemon at %s (%s)", path_, why);
  socket_.Close();
  ends_.TellAgain();
  if (state() != LinkState::kConnected) return Exchange::kLost;
  scoreboard_->SetLink(LinkState::kLost, reason_);
  SetState(LinkState::kLost);
  if (!is_quiet_) WarnOfLoss();
  return Exchange::kLost;
}

// Waits for a message, and sends the ends that other threads report while it
// waits, since this thread may be waiting for just one of those ends. Returns
// an errno.
int DaemonLink::Await(int fd, uint64_t deadline_ms) {
  constexpr uint64_t kTellMs = 5;  // heuristic
  for (;;) {
    const uint64_t now_ms = std::min(NowMs(), deadline_ms);
    const uint64_t left_ms = deadline_ms - now_ms;
    const int error =
        WaitReadable(fd, static_cast<int>(std::min(left_ms, kTellMs)));
    if (error != ETIMEDOUT || left_ms <= kTellMs) return error;
    if (has_unconfirmed_ends()) SendUntold();
    if (socket_.Get() != fd) return ECONNRESET;
  }
}

// Sends a request and takes its answer. Answers to reported ends come before
// it.
template <typename Request, typename Answer>
Exchange DaemonLink::Ask(Request request, Answer* answer, Received* received,
                         int timeout_ms) {
  const int fd = socket_.Get();
  if (fd < 0) return Lose("its socket was closed by this program");
  // Sends the ends first, since the request may need slabs that have been given
  // up.
  while (SendEnds() || (has_unconfirmed_ends() && ends_.HasUnsent() &&
                        WaitReadable(fd, timeout_ms) == 0)) {
  }
  // The loop may have found that the daemon is gone. The number of the closed
  // descriptor may already be in use by the program.
  has_ended_ = socket_.Get() != fd;
  if (has_ended_) return Lose("it disconnected");
  request.header.sequence = ++sequence_;
  const uint64_t deadline_ms = NowMs() + static_cast<uint64_t>(timeout_ms);
  int error = abi::Send(fd, request);
  do {
    if (error == 0) error = Await(fd, deadline_ms);
    if (error == 0) error = received->ReceiveFrom(fd);
  } while (error == 0 && received->header() != nullptr &&
           ends_.Confirm(received->header()->sequence));
  has_ended_ = error == EPIPE || error == ECONNRESET;
  if (has_ended_) return Lose("it disconnected");
  if (error != 0) return Lose(strerrordesc_np(error));
  const Exchange outcome = Interpret(*received, request.header.sequence);
  if (outcome != Exchange::kOk) return outcome;
  return received->As(answer) ? Exchange::kOk
                              : Lose("it sent an answer of the wrong kind");
}

Exchange DaemonLink::Interpret(const Received& received, uint32_t sequence) {
  const abi::MessageHeader* header = received.header();
  if (header == nullptr) return Lose("it sent a malformed message");
  if (header->abi_version != abi::kAbiVersion) {
    refused_ = true;
    Lose("it has another version");
    snprintf(reason_, sizeof(reason_),
             "the daemon at %s uses version %u, but this shim uses version %u",
             path_, header->abi_version, abi::kAbiVersion);
    return Exchange::kRefused;
  }
  if (header->sequence != sequence) return Lose("it answered another request");
  abi::Refused refusal;
  if (!received.As(&refusal)) return Exchange::kOk;
  refusal.text[sizeof(refusal.text) - 1] = '\0';
  abi::CopyText(reason_, refusal.text);
  if (refusal.code == abi::RefusalCode::kPoolExhausted) {
    return Exchange::kExhausted;
  }
  refused_ = true;
  return Exchange::kRefused;
}

SlabGeometry DaemonLink::geometry() {
  const Turn turn(this);
  return {welcome_.granule_bytes,
          welcome_.granule_bytes * welcome_.granules_per_slab,
          welcome_.slab_count};
}

Exchange DaemonLink::LeaseSlabs(uint64_t bytes, Lease* out) {
  const Turn turn(this);
  if (state() != LinkState::kConnected) return Exchange::kLost;
  const uint64_t slab_bytes =
      welcome_.granule_bytes * welcome_.granules_per_slab;
  const uint64_t slabs = bytes / slab_bytes + (bytes % slab_bytes != 0);
  // Leaves it to the daemon what it can spare, because a pool may grow.
  if (slabs > UINT32_MAX) return Exchange::kExhausted;
  auto request = abi::MakeMessage<abi::LeaseRequest>(0);
  request.slab_count = static_cast<uint32_t>(slabs);
  request.request = lease_request_ % abi::kMostLeaseRequest + 1;
  lease_request_ = request.request;
  abi::LeaseGrant grant;
  Received received;
  const uint64_t epoch = welcome_.epoch;
  Exchange outcome = AskAgain(request, &grant, &received, timeouts_.request_ms);
  if (outcome == Exchange::kOk &&
      (grant.lease == 0 || grant.slab_count != slabs)) {
    outcome = Lose("it granted a lease that was not requested");
  }
  // The lease may have been granted nevertheless.
  if (outcome == Exchange::kLost && welcome_.epoch == epoch) {
    ends_.AddRequest(request.request);
  }
  if (outcome != Exchange::kOk) return outcome;
  *out = {grant.lease, welcome_.epoch, welcome_.granule_bytes,
          grant.slab_count * welcome_.granules_per_slab};
  return Exchange::kOk;
}

Exchange DaemonLink::Granules(const Lease& lease, uint32_t first,
                              Received* out) {
  const Turn turn(this);
  auto request = abi::MakeMessage<abi::GranuleRequest>(0);
  request.lease = lease.id;
  request.first = first;
  request.max_count =
      std::min(lease.granule_count - first, abi::kMaxDescriptorsPerMessage);
  return FetchBatch(request, lease.id, lease.epoch, out);
}

template <typename Request>
Exchange DaemonLink::FetchBatch(Request request, uint32_t lease, uint64_t epoch,
                                Received* out) {
  for (; request.max_count > 0; request.max_count /= 2) {
    abi::GranuleBatch batch;
    const Exchange outcome = AskFor(epoch, request, &batch, out);
    if (outcome != Exchange::kOk) return outcome;
    if (out->descriptors_lost()) continue;
    return IsBatchOf(batch, request, lease, *out)
               ? Exchange::kOk
               : Lose("it sent granules that were not requested");
  }
  return Exchange::kRefused;
}

template <typename Request, typename Answer>
Exchange DaemonLink::AskFor(uint64_t epoch, const Request& request,
                            Answer* answer, Received* received) {
  if (state() != LinkState::kConnected || epoch != welcome_.epoch) {
    return Exchange::kLost;
  }
  return AskAgain(request, answer, received, timeouts_.request_ms);
}

template <typename Request, typename Answer>
Exchange DaemonLink::AskAgain(const Request& request, Answer* answer,
                              Received* received, int timeout_ms) {
  const uint64_t epoch = welcome_.epoch;
  is_quiet_ = true;
  const Exchange outcome = Ask(request, answer, received, timeout_ms);
  is_quiet_ = false;
  if (outcome != Exchange::kLost) return outcome;
  if (has_ended_ && Meet() && welcome_.epoch == epoch) {
    return Ask(request, answer, received, timeout_ms);
  }
  if (state() == LinkState::kLost) WarnOfLoss();
  return outcome;
}

Exchange DaemonLink::RegisterView(const abi::ViewRequest& request,
                                  ViewGrant* out, Why& why) {
  const Turn turn(this);
  abi::CopyText(why, "there is no daemon");
  out->epoch = welcome_.epoch;
  abi::ViewAnswer answer;
  Received received;
  Exchange outcome = AskFor(welcome_.epoch, request, &answer, &received);
  if (outcome == Exchange::kOk && !Grant(request, answer, &received, out)) {
    outcome = Lose("it granted an unusable view");
  }
  if (reason_[0] != '\0') abi::CopyText(why, reason_);
  return outcome;
}

bool DaemonLink::Grant(const abi::ViewRequest& request,
                       const abi::ViewAnswer& answer, Received* received,
                       ViewGrant* out) {
  if (!IsUsable(answer, request, welcome_) ||
      received->descriptor_count() != 1 || table_.base() == nullptr ||
      !table_.IsSealed()) {
    return false;
  }
  out->engine_id = welcome_.engine_id;
  out->granule_bytes = welcome_.granule_bytes;
  out->granules_per_slab = welcome_.granules_per_slab;
  out->answer = answer;
  out->table = table_.base();
  out->table_bytes = table_.bytes();
  out->scoreboard = received->TakeDescriptor(0);
  return true;
}

Exchange DaemonLink::PoolGranules(uint64_t epoch, uint32_t first, uint32_t max,
                                  Received* out) {
  const Turn turn(this);
  auto request = abi::MakeMessage<abi::PoolGranuleRequest>(0);
  request.first = first;
  request.max_count = std::min(max, abi::kMaxDescriptorsPerMessage);
  return FetchBatch(request, /*lease=*/0, epoch, out);
}

Exchange DaemonLink::ActivateView(uint64_t epoch, uint32_t slabs,
                                  uint32_t wanted, Why& why) {
  const Turn turn(this);
  auto request = abi::MakeMessage<abi::ActivateRequest>(0);
  request.slabs = slabs;
  request.wanted = wanted;
  abi::ActivateDone done;
  Received received;
  const Exchange outcome = AskFor(epoch, request, &done, &received);
  abi::CopyText(why, reason_[0] != '\0' ? reason_ : "the daemon has gone");
  return outcome;
}

bool DaemonLink::TableGivesRoom() {
  const auto* table = static_cast<const abi::TableHeader*>(table_.base());
  return table != nullptr && table_.bytes() >= sizeof(*table) &&
         table_.IsSealed() &&
         table->gives_room.load(std::memory_order_relaxed) != 0;
}

bool DaemonLink::GivesRoom() {
  const Turn turn(this);
  return TableGivesRoom();
}

Exchange DaemonLink::AskRoom(uint64_t bytes, uint64_t most_ms,
                             uint64_t* coming) {
  const Turn turn(this);
  *coming = 0;
  if (state() != LinkState::kConnected) return Exchange::kLost;
  // An older daemon would end the connection at such a request.
  if (!TableGivesRoom()) return Exchange::kRefused;
  auto request = abi::MakeMessage<abi::RoomRequest>(0);
  request.bytes = bytes;
  abi::RoomAnswer answer;
  Received received;
  const auto timeout_ms = static_cast<int>(
      std::min<uint64_t>(most_ms, static_cast<uint64_t>(timeouts_.request_ms)));
  const Exchange outcome = AskAgain(request, &answer, &received, timeout_ms);
  if (outcome == Exchange::kOk) *coming = answer.coming_bytes;
  return outcome;
}

Exchange DaemonLink::RunPool(PoolRun* out, Why& why) {
  const Turn turn(this);
  abi::CopyText(why, "there is no daemon");
  Received received;
  Exchange outcome =
      AskFor(welcome_.epoch, abi::MakeMessage<abi::RunPoolRequest>(0),
             &out->answer, &received);
  if (outcome == Exchange::kOk &&
      (!IsUsable(out->answer) || received.descriptor_count() != 1 ||
       table_.base() == nullptr || !table_.IsSealed())) {
    outcome = Lose("it granted an unusable view");
  }
  if (reason_[0] != '\0') abi::CopyText(why, reason_);
  if (outcome != Exchange::kOk) return outcome;
  out->epoch = welcome_.epoch;
  out->engine_id = welcome_.engine_id;
  out->table = table_.base();
  out->table_bytes = table_.bytes();
  out->scoreboard = received.TakeDescriptor(0);
  return outcome;
}

void DaemonLink::CopyIdentity(uint8_t (&gpu_uuid)[16],
                              char (&name)[abi::kNameBytes]) {
  const Turn turn(this);
  memcpy(gpu_uuid, gpu_uuid_, sizeof(gpu_uuid));
  abi::CopyText(name, name_);
}

DaemonLink::Membership DaemonLink::membership() {
  const Turn turn(this);
  if (state() != LinkState::kConnected) return {};
  return {welcome_.engine_id, welcome_.epoch};
}

void DaemonLink::CopyReason(Why& why) {
  const Turn turn(this);
  abi::CopyText(why, reason_);
}

void DaemonLink::AbandonInChild() {
  socket_.Close();
  table_.Close();
}

bool IsUsable(const abi::Welcome& w) {
  uint64_t slab_bytes;
  return w.granule_bytes > 0 && w.granules_per_slab > 0 && w.engine_id != 0 &&
         w.declared_size_count <= abi::kDeclaredSizeCapacity &&
         w.rule_count <= abi::kRuleCapacity &&
         !__builtin_mul_overflow(w.granule_bytes, w.granules_per_slab,
                                 &slab_bytes);
}

bool IsUsable(const abi::ViewAnswer& a, const abi::ViewRequest& request,
              const abi::Welcome& pool) {
  return a.granules_per_plane > 0 &&
         uint64_t{a.granules_per_plane} * request.planes <=
             pool.granules_per_slab &&
         a.plane_bytes == a.granules_per_plane * pool.granule_bytes &&
         a.plane_bytes >= request.page_bytes && a.slab_count > 0 &&
         a.floor_slabs <= a.slab_count && a.cap_slabs <= a.slab_count;
}

bool IsUsable(const abi::RunPoolAnswer& a) {
  uint64_t end;
  return a.page_bytes > 0 && a.plane_bytes >= a.page_bytes && a.slabs > 0 &&
         a.slabs <= a.slab_count && a.floor_slabs <= a.slabs &&
         a.cap_slabs <= a.slabs &&
         !__builtin_mul_overflow(a.plane_bytes, uint64_t{a.slabs} + 1, &end);
}

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

// Sends the ends. A thread that finds the mutex taken leaves the ends to its
// owner, which calls this when it has unlocked the mutex.
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
    ends_.Sent(sequence_);
    any = true;
  }
  return any;
}

// Takes the answers that have arrived. They arrive in the order of the messages
// that they confirm.
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

void DaemonLink::AwaitFormerProgram() {
  char folder[abi::kPathBytes];
  DIR* entries = abi::RuntimeFolder(folder) ? opendir(folder) : nullptr;
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    char path[abi::kPathBytes + sizeof(entry->d_name)];
    if (!IsSocket(entry->d_name)) continue;
    snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    AwaitAnswer(path);
  }
  closedir(entries);
}

}  // namespace fineserve::shim
