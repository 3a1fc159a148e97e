#include "tools/lab/engines/view_random.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <random>

#include "tools/lab/engines/weak_kv.h"

namespace stock_engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInFlight = 2;
constexpr uint32_t kMostAtOnce = 64;  // blocks, in one step
// How many blocks a step writes again, as decoding appends to them. These
// include blocks of a slab that was asked back, which must not leave before the
// step has ended.
constexpr uint32_t kAppended = 4;

class RandomServer {
 public:
  RandomServer(ViewBlocks* blocks, uint32_t most_blocks, uint64_t seed)
      : blocks_(blocks), most_blocks_(most_blocks), random_(seed) {
    for (InFlight& step : steps_) {
      STOCK_ENGINE_CALL(cuEventCreate, &step.done,
                        fineserve::driver::CU_EVENT_DISABLE_TIMING);
    }
  }
  ~RandomServer() {
    for (InFlight& step : steps_) {
      STOCK_ENGINE_CALL(cuEventDestroy_v2, step.done);
    }
  }
  RandomServer(const RandomServer&) = delete;
  RandomServer& operator=(const RandomServer&) = delete;

  bool Run(Clock::time_point end) {
    while (Clock::now() < end && ok_) {
      if (steps_begun_ % 40 == 0) ChangeDemand();
      Step();
    }
    while (ok_ && steps_ended_ < steps_begun_) EndOldest();
    if (ok_) Check(blocks_->Verify(), "mismatch");
    if (ok_) Report();
    return ok_;
  }

 private:
  struct InFlight {
    CUevent done = nullptr;
    uint64_t step = 0;
  };

  uint32_t Random(uint32_t below) {
    return static_cast<uint32_t>(random_() % below);
  }

  void ChangeDemand() {
    demand_ = Random(4) == 0 ? 0 : Random(most_blocks_ + 1);
    if (Random(3) == 0) usleep(Random(30) * 1'000);  // nothing to do
  }

  void Step() {
    InFlight& step = steps_[steps_begun_ % kInFlight];
    if (steps_begun_ - steps_ended_ == kInFlight) EndOldest();
    step.step = fs_kv_step_begin();
    if (step.step == 0) return Fail(fs_kv_error());
    ++steps_begun_;
    const auto held = static_cast<uint32_t>(blocks_->held().size());
    if (held < demand_) Take(1 + Random(std::min(demand_ - held, kMostAtOnce)));
    Append();
    written_ += blocks_->Write(step.done);
    // Frees some in the step that writes them, so that their slab may drain.
    if (held > demand_) Drop(1 + Random(std::min(held - demand_, kMostAtOnce)));
    if (Random(5) == 0) Drop(Random(4));
  }

  void Take(uint32_t count) {
    const int result = blocks_->Allocate(count);
    if (result == FS_EXHAUSTED) {
      ++exhausted_;
      demand_ = static_cast<uint32_t>(blocks_->held().size());
      // Waits as an idle engine does. An error means that the daemon has ended,
      // which does no harm.
      if (Random(2) == 0) fs_kv_wait(static_cast<int>(Random(20)));
      return;
    }
    if (result != FS_OK) return Fail(fs_kv_error());
    Check(blocks_->FindForeign(/*or_own=*/true), "foreign");
  }

  void Append() {
    const size_t held = blocks_->held().size();
    if (held < kAppended) return;
    appended_ = Random(static_cast<uint32_t>(held - kAppended + 1));
    for (uint32_t i = 0; i < kAppended; ++i) blocks_->WriteAgain(appended_ + i);
  }

  // Picks a block that was just written, or any.
  size_t PlaceToDrop() {
    const auto held = static_cast<uint32_t>(blocks_->held().size());
    const size_t appended = appended_ + Random(kAppended);
    return Random(2) == 0 && appended < held ? appended : Random(held);
  }

  void Drop(uint32_t count) {
    for (; count > 0 && ok_ && !blocks_->held().empty(); --count) {
      const size_t place = PlaceToDrop();
      if (Random(2) == 0) Check(blocks_->VerifyAt(place), "mismatch");
      if (ok_ && blocks_->FreeAt(place) != FS_OK) Fail(fs_kv_error());
      ++freed_;
    }
  }

  void EndOldest() {
    const InFlight& step = steps_[steps_ended_ % kInFlight];
    STOCK_ENGINE_CALL(cuEventSynchronize, step.done);
    if (fs_kv_step_end(step.step) != FS_OK) Fail(fs_kv_error());
    ++steps_ended_;
  }

  void Check(const Wrong& wrong, const char* what) {
    if (!wrong.found) return;
    printf("error %s %s\n", what, wrong.Text().c_str());
    ok_ = false;
  }
  void Fail(const char* why) {
    printf("error %s\n", why);
    ok_ = false;
  }

  void Report() const {
    fs_kv_stats stats = {};
    stats.struct_bytes = sizeof(stats);
    fs_kv_read_stats(&stats);
    printf("ok random steps=%" PRIu64 " written=%" PRIu64 " freed=%" PRIu64
           " exhausted=%" PRIu64 " returned=%" PRIu64 " calls_serving=%" PRIu64
           "\n",
           steps_begun_, written_, freed_, exhausted_, stats.returned_slabs,
           stats.driver_calls_serving);
  }

  ViewBlocks* const blocks_;
  const uint32_t most_blocks_;
  std::mt19937_64 random_;
  InFlight steps_[kInFlight];
  uint64_t steps_begun_ = 0;
  uint64_t steps_ended_ = 0;
  uint64_t written_ = 0;
  uint64_t freed_ = 0;
  uint64_t exhausted_ = 0;
  uint32_t demand_ = 0;
  size_t appended_ = 0;  // the place of the first of kAppended
  bool ok_ = true;
};

}  // namespace

bool ServeAtRandom(ViewBlocks* blocks, uint32_t most_blocks, double seconds,
                   uint64_t seed) {
  const auto limit = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
  return RandomServer(blocks, most_blocks, seed).Run(Clock::now() + limit);
}

}  // namespace stock_engine
