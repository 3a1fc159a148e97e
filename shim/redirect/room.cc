// The part of Redirector that gets device memory from the pool for what is not
// KV: weights, activations, graphs.

#include <time.h>

#include "shim/link/seqpacket.h"
#include "shim/redirect/redirector.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUresult;

// Between two tries. The daemon measures as often while somebody waits.
constexpr timespec kPause = {0, 20'000'000};

}  // namespace

// An engine that serves may itself hold what others wait for, and may free
// memory of its own if it is refused. One that wakes up has its KV before its
// weights.
uint64_t Redirector::RoomWaitMs() const {
  const bool serves = view_.in_use() ? view_.serves() : !ranges_->empty();
  return serves ? room_waits_.serving_ms : room_waits_.starting_ms;
}

// The driver has no memory for this call, and the pool may have some: tries
// again while more comes. The allocation itself is the judge of whether there
// is enough. `refused` is the driver's answer so far.
CUresult Redirector::TryWithRoom(const Driver& real, const AllocationCall& call,
                                 CUresult refused) {
  const uint64_t began_ms = NowMs();
  const uint64_t until_ms = began_ms + RoomWaitMs();
  uint64_t coming = 0;
  uint32_t tries = 0;
  CUresult result = refused;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && NowMs() < until_ms &&
         link_.AskRoom(call.bytes, &coming) == Exchange::kOk && coming > 0) {
    // What has left the pool is free once every process has unmapped it, which
    // the view's keeper does in this one.
    nanosleep(&kPause, nullptr);
    result = call.original(real.entry);
    ++tries;
  }
  if (tries == 0) return result;
  link_.AskRoom(0, &coming);  // it waits no more
  scoreboard_.CountRoomWait(NowMs() - began_ms);
  return result;
}

}  // namespace fineserve::shim
