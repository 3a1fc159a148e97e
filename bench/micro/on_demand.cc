#include "bench/micro/on_demand.h"

#include <chrono>

namespace fineserve::bench {

OnDemand::OnDemand(uint32_t pages, uint32_t blocks_per_page, uint32_t planes,
                   const DriverLatency& latency, bool buffer)
    : blocks_per_page_(blocks_per_page),
      planes_(planes),
      latency_(latency),
      buffer_(buffer),
      pages_(pages),
      partial_(blocks_per_page + 1) {
  for (uint32_t p = 0; p < pages; ++p) {
    for (uint32_t b = 0; b < blocks_per_page; ++b) {
      pages_[p].free.push_back(p * blocks_per_page + b);
    }
    unmapped_.push_back(p);
  }
  if (buffer_) refiller_ = std::thread([this] { Refill(); });
}

OnDemand::~OnDemand() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  refill_.notify_all();
  if (refiller_.joinable()) refiller_.join();
}

void OnDemand::Spin(uint64_t ns) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void OnDemand::MapPage(uint32_t) {
  driver_calls_.fetch_add(3 * planes_, std::memory_order_relaxed);
  Spin(planes_ * (latency_.create_ns + latency_.set_access_ns));
}

void OnDemand::UnmapPage(uint32_t) {
  driver_calls_.fetch_add(2 * planes_, std::memory_order_relaxed);
  Spin(planes_ * latency_.unmap_ns);
}

void OnDemand::Refill() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    if (mapped_.size() >= kBufferLow || unmapped_.empty()) {
      refill_.wait(lock);
      continue;
    }
    const uint32_t page = unmapped_.back();
    unmapped_.pop_back();
    lock.unlock();
    MapPage(page);
    lock.lock();
    mapped_.push_back(page);
  }
}

uint32_t OnDemand::FreshPage() {
  uint32_t page;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!mapped_.empty()) {
      page = mapped_.back();
      mapped_.pop_back();
      refill_.notify_one();
      return page;
    }
    page = unmapped_.back();
    unmapped_.pop_back();
  }
  MapPage(page);
  return page;
}

uint32_t OnDemand::AllocateOne() {
  uint32_t page = UINT32_MAX;
  for (uint32_t free = 1; free < blocks_per_page_; ++free) {
    if (partial_[free].empty()) continue;
    page = partial_[free].back();
    partial_[free].pop_back();
    break;
  }
  if (page == UINT32_MAX) page = FreshPage();
  Page& p = pages_[page];
  const uint32_t id = p.free.back();
  p.free.pop_back();
  if (!p.free.empty()) {
    p.in_use_at = static_cast<uint32_t>(partial_[p.free.size()].size());
    partial_[p.free.size()].push_back(page);
  }
  return id;
}

bool OnDemand::Allocate(uint32_t count, uint32_t* ids) {
  for (uint32_t i = 0; i < count; ++i) ids[i] = AllocateOne();
  return true;
}

void OnDemand::Free(uint32_t count, const uint32_t* ids) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t page = ids[i] / blocks_per_page_;
    Page& p = pages_[page];
    if (!p.free.empty()) {  // remove it from the list for its current number
      std::vector<uint32_t>& list = partial_[p.free.size()];
      list[p.in_use_at] = list.back();
      pages_[list[p.in_use_at]].in_use_at = p.in_use_at;
      list.pop_back();
    }
    p.free.push_back(ids[i]);
    if (p.free.size() < blocks_per_page_) {
      p.in_use_at = static_cast<uint32_t>(partial_[p.free.size()].size());
      partial_[p.free.size()].push_back(page);
      continue;
    }
    bool keep;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      keep = buffer_ && mapped_.size() < kBufferHigh;
      if (keep) mapped_.push_back(page);
    }
    if (keep) continue;
    UnmapPage(page);
    const std::lock_guard<std::mutex> lock(mutex_);
    unmapped_.push_back(page);
  }
}

}  // namespace fineserve::bench
