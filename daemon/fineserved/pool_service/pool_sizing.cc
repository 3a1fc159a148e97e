#include "daemon/fineserved/pool_service/pool_sizing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/base/log/log.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/beyond.h"

namespace fineserve::server {
namespace {

// Intervals between two measurements, each of which takes some µs: while a
// process waits, while slabs are short, and otherwise. Heuristics.
constexpr uint64_t kWaitingNs = 20'000'000;
constexpr uint64_t kTightNs = 250'000'000;
constexpr uint64_t kCalmNs = 1'000'000'000;
// Maximum age of a measurement that may end a process's wait.
constexpr uint64_t kFreshNs = 100'000'000;

}  // namespace

PoolSizing::PoolSizing(uint64_t headroom_bytes, PoolService* pool,
                       const Clock* clock)
    : headroom_bytes_(headroom_bytes),
      pool_(pool),
      clock_(clock),
      size_(pool->slab_bytes(), headroom_bytes) {}

uint64_t PoolSizing::Ask(slab::EngineId engine, pid_t pid, uint64_t bytes,
                         bool starts) {
  const uint64_t now_ns = clock_->NowNs();
  const auto asker = static_cast<uint32_t>(pid);
  if (bytes == 0) {
    size_.Served(asker);
    return 0;
  }
  next_ns_ = std::min(next_ns_, now_ns);
  const uint32_t present = pool_->state().present_slabs();
  const uint64_t slab = pool_->slab_bytes();
  const uint64_t givable = pool_->state().GivableFor(engine) * slab;
  if (bytes > size_.FreeSoon(free_bytes_, present) + givable) {
    size_.Forget(asker);
    return now_ns - measured_ns_ < kFreshNs ? 0 : slab;
  }
  size_.Ask(asker, bytes, starts, now_ns);
  return size_.arriving(present, now_ns) ? std::max(givable, slab) : givable;
}

absl::optional<uint64_t> PoolSizing::IdleBytes() {
  const uint64_t now_ns = clock_->NowNs();
  next_ns_ = std::min(next_ns_, now_ns);
  if (measured_ns_ == 0 || now_ns - measured_ns_ >= kFreshNs) {
    return absl::nullopt;
  }
  const slab::PoolState& pool = pool_->state();
  const uint64_t idle = pool.slabs().free_count() * pool_->slab_bytes();
  return size_.FreeSoon(free_bytes_, pool.present_slabs()) + idle;
}

uint64_t PoolSizing::LackBeyondPool(uint64_t bytes) const {
  if (clock_->NowNs() - measured_ns_ >= kFreshNs) return 0;
  const uint32_t present = pool_->state().present_slabs();
  return slab::Beyond(bytes, size_.FreeSoon(free_bytes_, present) +
                                 present * pool_->slab_bytes());
}

bool PoolSizing::AwaitSlabs(uint32_t lack) {
  const slab::PoolState& pool = pool_->state();
  const uint64_t now_ns = clock_->NowNs();
  next_ns_ = std::min(next_ns_, now_ns);
  if (measured_ns_ != 0 && now_ns - measured_ns_ >= kFreshNs) {
    return lack > 0;  // it is measured at once
  }
  const bool fits =
      lack > 0 && lack <= pool.geometry().slab_count - pool.present_slabs() &&
      (measured_ns_ == 0 ||
       free_bytes_ >= headroom_bytes_ + lack * pool_->slab_bytes());
  if (fits) slabs_until_ns_ = now_ns + kTightNs;
  // Memory that is joining the pool now is no longer free, but not a slab yet.
  return fits || (pool.resizing() && now_ns < slabs_until_ns_);
}

void PoolSizing::CameFree() {
  size_.CameFree();
  next_ns_ = std::min(next_ns_, clock_->NowNs());
}

void PoolSizing::Grow() {
  const uint64_t now_ns = clock_->NowNs();
  next_ns_ = std::min(next_ns_, now_ns);
  slabs_until_ns_ = now_ns + kTightNs;
}

bool PoolSizing::IsAtLimit(uint64_t more_bytes) const {
  const slab::PoolState& pool = pool_->state();
  return measured_ns_ != 0 && !pool.resizing() &&
         pool.present_slabs() < pool.geometry().slab_count &&
         free_bytes_ <
             headroom_bytes_ + std::max(more_bytes, pool_->slab_bytes());
}

uint64_t PoolSizing::PauseNs() const {
  const uint64_t now_ns = clock_->NowNs();
  if (size_.asked(now_ns) || now_ns < slabs_until_ns_) return kWaitingNs;
  return pool_->state().tight() ? kTightNs : kCalmNs;
}

void PoolSizing::Settle() {
  if (auto measured = pool_->TakeFree()) {
    measuring_ = false;
    next_ns_ = clock_->NowNs() + PauseNs();
    if (measured->ok()) {
      Choose(**measured);
    } else if (!std::exchange(error_logged_, true)) {
      log::Error("the pool keeps its size: {}",
                 std::string(measured->status().message()));
    }
  }
  if (measuring_ || clock_->NowNs() < next_ns_) return;
  measuring_ = true;
  next_ns_ = UINT64_MAX;  // until the answer is there
  pool_->MeasureFree();
}

void PoolSizing::Choose(uint64_t free_bytes) {
  const uint64_t now_ns = clock_->NowNs();
  const slab::PoolState& pool = pool_->state();
  free_bytes_ = free_bytes;
  measured_ns_ = now_ns;
  slab::SizeSight sight;
  sight.free_bytes = free_bytes;
  sight.present = pool.present_slabs();
  sight.wanted = pool.wanted_slabs();
  sight.least = pool.NeededSlabs();
  sight.most = pool.geometry().slab_count;
  sight.idle = pool.slabs().free_count();
  sight.tight = pool.tight();
  sight.start_waits = now_ns < slabs_until_ns_;
  sight.starting = pool.AnyStarting(now_ns);
  sight.lacking = pool.LackingSlabs();
  sight.reserved_bytes = now_ns < reserved_until_ns_ ? reserved_bytes_ : 0;
  const uint32_t size = size_.Choose(sight, now_ns);
  if (size == sight.wanted || !pool_->machine()->Resize(size).ok()) return;
  Say(sight.wanted, size, free_bytes);
}

void PoolSizing::Say(uint32_t before, uint32_t after,
                     uint64_t free_bytes) const {
  const std::string free = abi::SizeText(free_bytes);
  if (after > before) {
    log::Info("the pool grows from {} to {} slabs: {} of the GPU are free",
              before, after, free);
  } else if (size_.asked(clock_->NowNs())) {
    log::Info(
        "the pool shrinks from {} to {} slabs: an engine waits for device "
        "memory, {} are free",
        before, after, free);
  } else {
    log::Info("the pool shrinks from {} to {} slabs: {} of the GPU are free",
              before, after, free);
  }
}

}  // namespace fineserve::server
