// The part of Mover that drops this process's copies of its parameters in
// favour of another process's, and restores them.

#include <stdio.h>
#include <time.h>

#include <algorithm>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/process_start.h"
#include "shim/eviction/mover.h"
#include "shim/gate/gate.h"
#include "shim/gate/presence.h"
#include "shim/host/warn.h"
#include "shim/link/process_exchange.h"

namespace fineserve::shim {
namespace {

using abi::Place;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_SUCCESS;
using driver::CUresult;
using Swapped = ResidentMemory::Swapped;

// Heuristics. Exporting memory takes some 10 µs per allocation.
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
      return "lends its parameters to too many others";
    case abi::ReadResult::kAway:
      return "is leaving the GPU, or has left it";
  }
  return "gives an answer that does not fit";
}

}  // namespace

// Drops `bytes` of this process's own copy, or as many as the lender can
// replace, and reads the lender's copy instead. After an error this process
// reads the same parameters as before, and keeps running.
bool Mover::Drop(const Driver& real, const abi::ShareAddress& lender,
                 uint64_t bytes) {
  const bool reads = report_.place == Place::kDropped;
  if (reads && lender.pid != lender_.pid) {
    return Fail("it reads the parameters of pid %u already", lender_.pid);
  }
  if ((!reads && report_.place != Place::kGpu) || seat_ != abi::Seat::kWhole) {
    return Fail("it is not on the GPU, or on several");
  }
  if (redirector_->peers().in_use()) {
    return Fail("other devices of its process may access its parameters");
  }
  if (!EndReading()) {
    return Fail("pid %u, whose parameters it read, does not answer",
                former_lender_.pid);
  }
  const uint64_t dropped = redirector_->resident()->sum().dropped_bytes;
  if (reads && dropped >= bytes) return true;
  lender_ = lender;
  if (DropMore(real, bytes - dropped)) {
    report_.place = Place::kDropped;
    restore_at_ms_ = 0;
    ShowLender();
    return true;
  }
  // While this process reads from the lender, the lender also keeps the
  // parameters that it has lent for this attempt.
  if (reads) return false;
  former_lender_ = lender_;
  lender_ = {};
  EndReading();
  return false;
}

bool Mover::DropMore(const Driver& real, uint64_t bytes) {
  ResidentMemory& memory = *redirector_->resident();
  const char* const why = memory.BeginDrop(real);
  if (why != nullptr) return Fail("%s", why);
  uint64_t got = 0;
  const bool done =
      Compare(real, bytes, &got) && (got == 0 || SwapParameters(real));
  if (!done || got == 0) memory.LetGo(real);
  return done;
}

// Opens parameters of the lender, and has them compared. The lender keeps the
// parameters that it has lent, and neither process writes its copy. Adds their
// bytes to `got`, which stays 0 if nothing further can be dropped.
bool Mover::Collect(const Driver& real, uint64_t bytes,
                    ResidentMemory::Carrier* comparer, uint64_t* got) {
  ResidentMemory& memory = *redirector_->resident();
  uint32_t last = 0;
  while (*got < bytes) {
    Wanted wanted;
    uint64_t asked = 0;
    while (wanted.count < abi::kLentPerAnswer && *got + asked < bytes) {
      const uint32_t next = memory.Take(last, &wanted.bytes[wanted.count]);
      if (next == 0) break;
      last = wanted.numbers[wanted.count] = next;
      asked += wanted.bytes[wanted.count++];
    }
    if (wanted.count == 0) break;
    if (!CollectSome(real, wanted, comparer, got)) return false;
  }
  if (*got != 0 || report_.place == Place::kDropped) return true;
  return last == 0
             ? Fail("it lends all of its parameters, or has dropped the rest")
             : Fail("pid %u has dropped its own parameters", lender_.pid);
}

// Asks for the wanted parameters, and adds the bytes that the lender has lent
// to `got`.
bool Mover::CollectSome(const Driver& real, const Wanted& wanted,
                        ResidentMemory::Carrier* comparer, uint64_t* got) {
  ResidentMemory& memory = *redirector_->resident();
  auto request = abi::MakeMessage<abi::ReadRequest>(1);
  request.reader = sharer_->Address();
  request.count = wanted.count;
  std::copy_n(wanted.numbers, wanted.count, request.wanted);
  abi::Received received;
  abi::ReadAnswer answer;
  if (AskProcess(lender_, request, kCollectMs, &received, &answer) !=
      Asked::kAnswered) {
    return Fail("pid %u does not answer, or has ended", lender_.pid);
  }
  if (answer.result != abi::ReadResult::kLent || answer.count != wanted.count) {
    return Fail("pid %u %s", lender_.pid, WordsOf(answer.result));
  }
  bool equal = answer.total == memory.CountFrozen();
  uint32_t descriptors = 0;
  for (uint32_t i = 0; i < answer.count && equal; ++i) {
    if (answer.bytes[i] == 0) {
      memory.Untake(wanted.numbers[i]);
      continue;
    }
    equal = answer.bytes[i] == wanted.bytes[i];
    if (!equal || descriptors == received.descriptor_count()) break;
    const driver::Descriptor one(received.TakeDescriptor(descriptors++));
    report_.why[0] = '\0';
    const char* const why =
        memory.Pair(real, wanted.numbers[i], one.get(), comparer);
    if (why != nullptr) return report_.why[0] == '\0' && Fail("%s", why);
    *got += wanted.bytes[i];
  }
  if (!equal) {
    return Fail("its parameters are not those of pid %u", lender_.pid);
  }
  return descriptors == received.descriptor_count() ||
         Fail("pid %u %s", lender_.pid, WordsOf(answer.result));
}

// Swaps the parameters while the gate is closed. The process cannot use the
// device in that time, so as little as possible is done in it.
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

// Does nothing if this process has its own copy. After an error it still reads
// the lender's.
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

// Notifies the former lender. False if it must be notified again later.
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

// Restores if the lender asks for it or has ended; until then the lender's
// memory stays, because it is mapped here. True if it has restored.
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

// Returns true once no other process reads this process's parameters.
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
