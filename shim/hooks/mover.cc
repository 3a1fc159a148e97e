#include "shim/hooks/mover.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/abi/byte_size.h"
#include "daemon/abi/socket_path.h"
#include "shim/hooks/thread_state.h"
#include "shim/host/own_thread.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/weights/gate.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;

// Heuristics: a call that is inside longer, or work that runs longer, means
// that the engine is not idle; it then goes on.
constexpr uint64_t kInsideMs = 10'000;
constexpr int kRestMs = 10'000;
constexpr int kAnswerMs = 10'000;  // from Hello to Welcome
constexpr int kListenMs = 60'000;  // between looks at a silent socket
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
  // A move that is under way ends first.
  const MutexLock lock(&turn_);
  stopped_ = true;
}

void Mover::AbandonInChild() {
  socket_.Close();
  copy_.Close();
  started_.store(false, std::memory_order_relaxed);
}

void* Mover::Run(void* mover) {
  pthread_setname_np(pthread_self(), "fineserve-move");
  t_gate_visitor.exempt = true;
  const ReentryGuard guard;
  static_cast<Mover*>(mover)->Serve();
  return nullptr;
}

void Mover::Serve() {
  report_ = abi::MakeMessage<abi::MoveReport>(0);
  report_.place = Place::kGpu;
  for (;;) {
    if (Connect()) {
      while (Report() && AwaitOrder()) {
      }
    }
    socket_.Close();
    {
      const MutexLock lock(&turn_);
      if (stopped_) return;
    }
    nanosleep(&kConnectPause, nullptr);
  }
}

// The process is a member first: its link finds a lost daemon's successor.
bool Mover::Connect() {
  DaemonLink& link = redirector_->link();
  uint8_t gpu[16];
  auto hello = abi::MakeMessage<abi::Hello>(0);
  link.Look();
  link.Rejoin();
  link.CopyIdentity(gpu, hello.engine_name);
  if (link.is_due()) link.Join(gpu, /*reconnect=*/true);
  if (link.state() != abi::LinkState::kConnected) return false;
  hello.role = abi::Role::kMover;
  hello.pid = static_cast<uint32_t>(getpid());
  memcpy(hello.gpu_uuid, gpu, sizeof(gpu));
  char folder[abi::kPathBytes], path[abi::kPathBytes];
  char why[256];
  if (!abi::RuntimeFolder(folder) || !abi::SocketPath(folder, gpu, path)) {
    return false;
  }
  const int fd = ConnectTo(path, kAnswerMs, why, sizeof(why));
  if (fd < 0) return false;
  socket_.Adopt(fd);
  abi::Received received;
  abi::Welcome welcome;
  sequence_ = 0;
  return abi::Send(fd, hello) == 0 && WaitReadable(fd, kAnswerMs) == 0 &&
         received.ReceiveFrom(fd) == 0 && received.As(&welcome);
}

bool Mover::Report() {
  const ResidentSum sum = redirector_->resident()->sum();
  redirector_->scoreboard().ShowResident(sum);
  redirector_->scoreboard().ShowGateWaits(g_gate.waits());
  report_.header.sequence = ++sequence_;
  report_.allocations = sum.here + sum.out;
  report_.moving_bytes = sum.here_bytes - sum.pinned_bytes;
  report_.pinned_bytes = sum.pinned_bytes;
  report_.out_bytes = sum.out_bytes;
  const int fd = socket_.Get();
  const int copy = copy_.Get();
  return fd >= 0 && abi::Send(fd, report_, &copy, copy >= 0 ? 1 : 0) == 0;
}

// False if the connection is over. The result of the order is the next report.
bool Mover::AwaitOrder() {
  const int fd = socket_.Get();
  int error = ETIMEDOUT;
  while (fd >= 0 && error == ETIMEDOUT && socket_.Get() == fd) {
    error = WaitReadable(fd, kListenMs);
  }
  abi::Received received;
  abi::MoveOrder order;
  report_.order = report_.failed = 0;
  report_.why[0] = '\0';
  if (fd < 0 || error != 0 || received.ReceiveFrom(fd) != 0 ||
      !received.As(&order)) {
    return false;
  }
  const int copy =
      received.descriptor_count() == 1 ? received.TakeDescriptor(0) : -1;
  Obey(order, copy);
  if (copy >= 0 && copy_.Get() != copy) close(copy);
  return true;
}

bool Mover::Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report_.why, sizeof(report_.why), format, arguments);
  va_end(arguments);
  return false;
}

void Mover::Obey(const abi::MoveOrder& order, int copy) {
  const MutexLock lock(&turn_);
  report_.order = order.order;
  if (stopped_) {
    report_.failed = 1;
    Fail("the program is ending");
    return;
  }
  if (order.to == report_.place) return;
  const bool done =
      order.to == Place::kHost ? Evict(*real_, copy) : Activate(*real_);
  report_.failed = done ? 0 : 1;
  if (done) report_.place = order.to;
}

// After an error everything is where it was, and the gate is open.
bool Mover::Evict(const Driver& real, int copy) {
  ResidentMemory& memory = *redirector_->resident();
  if (copy < 0) return Fail("fineserved sent no memory for the copy");
  if (redirector_->view().is_active()) {
    return Fail(
        "its KV is in a view that is active: suspend it first (vLLM: POST "
        "/sleep)");
  }
  if (!memory.EndRest()) {
    return Fail("its work on the GPU has not ended since the last try");
  }
  if (!g_gate.Close(kInsideMs)) {
    return Fail("a call of its to the driver did not return within %lu ms",
                kInsideMs);
  }
  char why[sizeof(report_.why)];
  const bool rests = memory.Rest(real, kRestMs, why, sizeof(why));
  if (!rests) g_gate.Open();
  if (!rests) return Fail("%s", why);
  memory.EndRest();
  const CUresult result = memory.Evict(real, copy);
  if (result == CUDA_SUCCESS) {
    // Its size is what it was made for; a mapping of it cannot fault.
    fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    copy_.Adopt(copy);
    return true;
  }
  g_gate.Open();
  return result == CUDA_ERROR_OUT_OF_MEMORY
             ? Fail("the host has no memory for its copy")
             : Fail("its memory could not be copied: CUDA error %d",
                    static_cast<int>(result));
}

// After an error all is out still, and the gate is closed.
bool Mover::Activate(const Driver& real) {
  ResidentMemory& memory = *redirector_->resident();
  const int copy = copy_.Get();
  if (copy < 0) return Fail("the program has closed the copy's descriptor");
  const CUresult result =
      memory.Activate(real, copy, [&](const Redirection& range) {
        return redirector_->peers().Open(real, range);
      });
  if (result == CUDA_SUCCESS) {
    copy_.Close();
    g_gate.Open();
    return true;
  }
  char size[abi::kByteSizeText];
  abi::FormatByteSize(memory.sum().out_bytes, size);
  return result == CUDA_ERROR_OUT_OF_MEMORY
             ? Fail("the GPU has no room for its %s", size)
             : Fail("its memory could not be put back: CUDA error %d",
                    static_cast<int>(result));
}

}  // namespace fineserve::shim
