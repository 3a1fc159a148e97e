#include "tools/lab/engines/tinyserve/kv/leased_blocks.h"

#include <chrono>
#include <utility>

#include "tools/lab/engines/weak_kv.h"

namespace tinyserve {
namespace {

// The longest time until the thread notices the end of the program; leases wake
// it at once.
constexpr int kLookMs = 100;
// Without a daemon fs_kv_wait returns at once.
constexpr std::chrono::milliseconds kNoDaemonPause{500};

}  // namespace

bool LeasedBlocks::IsAway() const { return fs_kv_presence() == FS_KV_AWAY; }

void LeasedBlocks::BeginStep() { step_ = fs_kv_step_begin(); }

void LeasedBlocks::EndStep() {
  if (step_ != 0) fs_kv_step_end(step_);
  step_ = 0;
}

bool LeasedBlocks::Allocate(uint32_t count, std::vector<BlockId>* to) {
  const size_t before = to->size();
  to->resize(before + count);
  if (fs_kv_allocate(count, to->data() + before) != FS_OK) {
    to->resize(before);
    return false;
  }
  used_ += count;
  return true;
}

void LeasedBlocks::Free(const std::vector<BlockId>& blocks) {
  fs_kv_free(static_cast<uint32_t>(blocks.size()), blocks.data());
  used_ -= blocks.size();
}

void LeasedBlocks::Expect(uint64_t blocks) {
  if (blocks != expected_) fs_kv_set_watermark(blocks);
  expected_ = blocks;
}

uint64_t LeasedBlocks::held_blocks() const {
  fs_kv_stats stats = {};
  stats.struct_bytes = sizeof(stats);
  if (fs_kv_read_stats(&stats) != FS_OK) return used_;
  return stats.free_blocks + stats.used_blocks;
}

LeaseWatch::LeaseWatch(std::function<void()> wake)
    : wake_(std::move(wake)), thread_([this] { Run(); }) {}

LeaseWatch::~LeaseWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LeaseWatch::Arm() {
  {
    const std::lock_guard lock(mutex_);
    armed_ = true;
  }
  changed_.notify_all();
}

bool LeaseWatch::AwaitArmed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return armed_ || stopping_; });
  return !stopping_;
}

void LeaseWatch::Pause() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kNoDaemonPause, [this] { return stopping_; });
}

void LeaseWatch::Run() {
  while (AwaitArmed()) {
    const int changed = fs_kv_wait(kLookMs);
    if (changed < 0) Pause();
    if (changed <= 0) continue;
    {
      const std::lock_guard lock(mutex_);
      armed_ = false;
    }
    wake_();
  }
}

}  // namespace tinyserve
