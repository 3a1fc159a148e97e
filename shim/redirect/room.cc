// The part of Redirector that gets device memory from the pool for everything
// except KV: weights, activations, graphs, the scratch behind a view.

#include <time.h>

#include <algorithm>

#include "daemon/contract/abi/byte_size.h"
#include "shim/host/warn.h"
#include "shim/link/seqpacket.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {
namespace {

using abi::LinkState;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUresult;

// Pause between two tries. While a process waits, the daemon measures at the
// same interval.
constexpr timespec kPause = {0, 20'000'000};

// The least scratch of a view: two of the driver's granules.
constexpr uint64_t kScratchBytes = uint64_t{4} << 20;

void SayThatItWaits(uint64_t bytes, uint64_t wait_ms) {
  char size[abi::kByteSizeText];
  abi::FormatByteSize(bytes, size);
  Warn(
      "waiting for %s of device memory, which the pool gives back as requests "
      "of other engines end (up to %u s)",
      size, static_cast<unsigned>(wait_ms / 1'000));
}

}  // namespace

// Returns how long a call waits for room. A serving engine may itself hold
// memory that others wait for, and may free some of it if it is refused. An
// engine that wakes up gets its KV before its weights.
uint64_t Redirector::RoomWaitMs() const {
  // An engine that is coming back serves nothing until all of its memory is
  // there.
  if (resident_ != nullptr && resident_->sum().out != 0) {
    return room_waits_.starting_ms;
  }
  const bool serves = view_.in_use() ? view_.serves() : ranges_->HoldsKv();
  return serves ? room_waits_.serving_ms : room_waits_.starting_ms;
}

// Returns the bytes that may become free. A lost daemon may be restarting, and
// its successor answers some seconds later.
uint64_t Redirector::AskRoom(uint64_t bytes, uint64_t wait_ms,
                             uint64_t until_ms) {
  uint64_t coming = 0;
  Exchange asked = link_.AskRoom(bytes, wait_ms, &coming);
  const uint64_t end_ms = std::min(until_ms, NowMs() + room_waits_.restart_ms);
  while (asked == Exchange::kLost && link_.state() == LinkState::kLost &&
         NowMs() < end_ms) {
    nanosleep(&kPause, nullptr);
    link_.Rejoin();
    asked = link_.AskRoom(bytes, wait_ms, &coming);
  }
  return asked == Exchange::kOk ? coming : 0;
}

MapResult Redirector::AddTensor(const Driver& real, uint64_t bytes,
                                Redirection* out) {
  MapResult mapped;
  const auto attempt = [&] {
    mapped = view_.AddTensor(real, bytes, out);
    return mapped.outcome == MapOutcome::kDriverError ? mapped.result
                                                      : driver::CUDA_SUCCESS;
  };
  TryWithRoom(kScratchBytes, attempt(), attempt);
  return mapped;
}

int Redirector::ResumeView(const Driver& real) {
  int resumed = FS_OK;
  const auto attempt = [&] {
    resumed = view_.Resume(real);
    return resumed == FS_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY
                                 : driver::CUDA_SUCCESS;
  };
  TryWithRoom(kScratchBytes, attempt(), attempt);
  return resumed;
}

// Repeats the call itself, since only that shows whether there is enough
// memory.
CUresult Redirector::TryAgain(uint64_t bytes, TryCall call, void* attempt,
                              CUresult refused) {
  const uint64_t began_ms = NowMs();
  const uint64_t wait_ms = RoomWaitMs();
  const uint64_t until_ms = began_ms + wait_ms;
  uint32_t tries = 0;
  bool said = false;
  CUresult result = refused;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && NowMs() < until_ms &&
         AskRoom(bytes, wait_ms, until_ms) > 0) {
    // Memory that has left the pool is free once every process has unmapped it,
    // which the view's keeper does in this process.
    nanosleep(&kPause, nullptr);
    result = call(attempt);
    ++tries;
    if (!said && NowMs() >= began_ms + room_waits_.silent_ms) {
      said = true;
      SayThatItWaits(bytes, wait_ms);
    }
  }
  if (tries == 0) return result;
  uint64_t coming = 0;
  link_.AskRoom(0, wait_ms, &coming);  // it has stopped waiting
  scoreboard_.CountRoomWait(NowMs() - began_ms);
  return result;
}

}  // namespace fineserve::shim
