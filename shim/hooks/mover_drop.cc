// The part of Mover that drops this process's copy of its parameters for
// another process's, and restores it.

#include <stdio.h>
#include <time.h>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/process_start.h"
#include "shim/hooks/mover.h"
#include "shim/host/warn.h"
#include "shim/link/process_exchange.h"
#include "shim/weights/gate.h"
#include "shim/weights/presence.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;
using Swapped = ResidentMemory::Swapped;

// Heuristics. Memory that is exported takes some 10 µs each.
constexpr int kCollectMs = 5'000;
constexpr int kReaderMs = 1'000;
constexpr uint64_t kAgainMs = 1'000;  // between tries and between requests
constexpr timespec kLookPause = {0, 5'000'000};

const char* WordsOf(abi::ReadResult result) {
  switch (result) {
    case abi::ReadResult::kLent:
      break;
    case abi::ReadResult::kUnnamed:
      return "has not said which memory holds parameters alone "
             "(fs_weights_freeze)";
    case abi::ReadResult::kReads:
      return "has dropped its own parameters, or lends them to others";
    case abi::ReadResult::kAway:
      return "is leaving the GPU, or has left it";
  }
  return "lends too little";
}

}  // namespace

// Drops this process's own copy. After an error it has it, and goes on.
bool Mover::Drop(const Driver& real, const abi::ShareAddress& lender) {
  if (report_.place == Place::kDropped) {
    return lender.pid == lender_.pid ||
           Fail("it reads the parameters of pid %u already", lender_.pid);
  }
  if (report_.place != Place::kGpu || seat_ != abi::Seat::kWhole) {
    return Fail("it is not on the GPU, or on several");
  }
  if (redirector_->peers().in_use()) {
    return Fail("other devices of its process may access its parameters");
  }
  if (!EndReading()) {
    return Fail("pid %u, whose parameters it read, does not answer",
                former_lender_.pid);
  }
  ResidentMemory& memory = *redirector_->resident();
  const char* const why = memory.BeginDrop(real);
  if (why != nullptr) return Fail("%s", why);
  lender_ = lender;
  if (Compare(real) && SwapParameters(real)) {
    report_.place = Place::kDropped;
    restore_at_ms_ = 0;
    ShowLender();
    return true;
  }
  memory.LetGo(real);
  former_lender_ = lender_;
  lender_ = {};
  EndReading();
  return false;
}

// Opens the lender's parameters, and has them compared. From its first answer
// on the lender keeps them, and neither of the two writes its own.
bool Mover::Collect(const Driver& real, ResidentMemory::Carrier* comparer) {
  ResidentMemory& memory = *redirector_->resident();
  auto request = abi::MakeMessage<abi::ReadRequest>(1);
  request.reader = sharer_->Address();
  abi::ReadAnswer answer = {};
  uint64_t bytes = 0;
  for (uint32_t own = 0; answer.is_last == 0; request.after = answer.last) {
    abi::Received received;
    if (AskProcess(lender_, request, kCollectMs, &received, &answer) !=
        Asked::kAnswered) {
      return Fail("pid %u does not answer, or has ended", lender_.pid);
    }
    if (answer.result != abi::ReadResult::kLent ||
        answer.count != received.descriptor_count() ||
        answer.count > abi::kLentPerAnswer ||
        (answer.is_last == 0 && answer.last <= request.after)) {
      return Fail("pid %u %s", lender_.pid, WordsOf(answer.result));
    }
    for (uint32_t i = 0; i < answer.count; ++i) {
      const driver::Descriptor one(received.TakeDescriptor(i));
      own = memory.NextFrozen(own, &bytes);
      if (own == 0 || bytes != answer.bytes[i]) {
        return Fail("its parameters are not those of pid %u", lender_.pid);
      }
      report_.why[0] = '\0';
      const char* const why = memory.Pair(real, own, one.get(), comparer);
      if (why == nullptr) continue;
      return report_.why[0] == '\0' && Fail("%s", why);
    }
    if (answer.is_last != 0 && memory.NextFrozen(own, &bytes) != 0) {
      return Fail("its parameters are not those of pid %u", lender_.pid);
    }
  }
  return true;
}

// Between closing and opening the gate nothing of this process uses the device,
// so as little as possible is done there.
bool Mover::SwapParameters(const Driver& real) {
  ResidentMemory& memory = *redirector_->resident();
  if (memory.HoldFormer(real) != CUDA_SUCCESS) {
    return Fail("the driver cannot hold its parameters");
  }
  if (!CloseGate(real)) return false;
  const Swapped swapped = memory.Swap(real, [&](const Redirection& range) {
    return redirector_->peers().Open(real, range);
  });
  if (swapped == Swapped::kLost) {
    lost_ = true;
    return Fail("its parameters cannot be mapped: this process ends");
  }
  g_gate.Open();
  memory.LetGo(real);
  return swapped == Swapped::kDone ||
         Fail("the driver cannot map its parameters");
}

// Does nothing if this process has its own copy. After an error it reads on.
bool Mover::Restore(const Driver& real) {
  if (report_.place != Place::kDropped) return true;
  if (!MakeOwn(real) || !SwapParameters(real)) {
    redirector_->resident()->LetGo(real);
    return false;
  }
  report_.place = Place::kGpu;
  former_lender_ = lender_;
  lender_ = {};
  ShowLender();
  EndReading();
  return true;
}

void Mover::ShowLender() {
  redirector_->scoreboard().ShowLender(lender_.pid);
  redirector_->scoreboard().ShowResident(redirector_->resident()->sum());
}

bool Mover::MakeOwn(const Driver& real) {
  ResidentMemory& memory = *redirector_->resident();
  const uint64_t bytes = memory.sum().dropped_bytes;
  const auto attempt = [&] {
    const CUresult result = memory.PrepareRestore(real);
    if (result != CUDA_SUCCESS) memory.LetGo(real);
    return result;
  };
  const CUresult result = redirector_->TryWithRoom(bytes, attempt(), attempt);
  if (result == CUDA_SUCCESS) return true;
  char size[abi::kByteSizeText];
  abi::FormatByteSize(bytes, size);
  return result == CUDA_ERROR_OUT_OF_MEMORY
             ? Fail("the GPU has no room for its own parameters, %s", size)
             : Fail("its own parameters could not be made: CUDA error %d",
                    static_cast<int>(result));
}

// False while the former lender has to be asked again.
bool Mover::EndReading() {
  if (former_lender_.pid == 0) return true;
  abi::Received received;
  abi::EndReadDone done;
  if (AskProcess(former_lender_, abi::MakeMessage<abi::EndReadRequest>(1),
                 kReaderMs, &received, &done) != Asked::kAnswered &&
      !abi::HasEnded(static_cast<pid_t>(former_lender_.pid),
                     former_lender_.image)) {
    return false;
  }
  former_lender_ = {};
  return true;
}

// Restores if the lender asks for it or has ended: its memory stays for as long
// as it is mapped here. True if it has restored.
bool Mover::TendLender() {
  const uint64_t now_ms = NowMs();
  if (!HasLender() || now_ms < restore_at_ms_) return false;
  const bool ended =
      lender_.pid != 0 &&
      abi::HasEnded(static_cast<pid_t>(lender_.pid), lender_.image);
  const bool has_to =
      ended || (lender_.pid != 0 && redirector_->resident()->is_recalled());
  if (!EndReading()) restore_at_ms_ = now_ms + kAgainMs;
  if (!has_to) return false;
  if (Restore(*real_)) return true;
  if (!lost_)
    Warn("its parameters are still another process's: %s", report_.why);
  restore_at_ms_ = NowMs() + kAgainMs;
  return false;
}

// False if the connection is over.
bool Mover::ReportLender() {
  bool restored = false;
  {
    const MutexLock lock(&turn_);
    restored = !stopped_ && TendLender();
  }
  EndIfLost();
  return !restored || Report();
}

// Returns true once no process reads this one's parameters.
bool Mover::RecallReaders(ResidentMemory* memory, uint64_t timeout_ms) {
  const uint64_t until_ms = NowMs() + timeout_ms;
  for (uint64_t ask_at_ms = 0;; nanosleep(&kLookPause, nullptr)) {
    memory->TakeBackFromEnded();
    abi::ShareAddress readers[ResidentMemory::kMostReaders];
    const size_t count = memory->Readers(readers);
    const uint64_t now_ms = NowMs();
    if (count == 0 || now_ms >= until_ms) return count == 0;
    if (now_ms < ask_at_ms) continue;
    ask_at_ms = now_ms + kAgainMs;
    for (size_t i = 0; i < count; ++i) {
      abi::Received received;
      abi::RecallDone done;
      AskProcess(readers[i], abi::MakeMessage<abi::RecallRequest>(1), kReaderMs,
                 &received, &done);
    }
  }
}

bool Mover::Thaw(uint64_t timeout_ms, char* why, size_t why_bytes) {
  ResidentMemory& memory = *redirector_->resident();
  memory.SetThawing(true);
  g_presence.Ring();
  const uint64_t until_ms = NowMs() + timeout_ms;
  bool is_read = !RecallReaders(&memory, timeout_ms);
  while (!is_read && !memory.IsApart() && NowMs() < until_ms) {
    nanosleep(&kLookPause, nullptr);
  }
  if (memory.IsApart()) {
    memory.Thaw();
    return true;
  }
  memory.SetThawing(false);
  snprintf(why, why_bytes,
           is_read ? "another process reads the parameters still"
                   : "the GPU has no room for this process's own parameters");
  return false;
}

}  // namespace fineserve::shim
