#include "tools/lab/engines/ranks/prompt_pool.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "tools/lab/engines/ranks/failures.h"

namespace stock_engine {
namespace {

constexpr uint32_t kAllBlocks = 32;  // of a slab
constexpr useconds_t kTurnUs = 1000;

uint32_t SlabsOf(const std::string& request) {
  const char* const field = strstr(request.c_str(), "\"slabs\":");
  return field == nullptr ? 1
                          : static_cast<uint32_t>(
                                strtoul(strchr(field, ':') + 1, nullptr, 10));
}

}  // namespace

PromptPool::PromptPool(Ranks* ranks, const fs_kv_geometry& geometry,
                       const HttpFront* front)
    : ranks_(ranks), front_(front), slabs_(geometry.slab_count + 1) {}

void PromptPool::Step() {
  TakeArrived();
  Want();
  Poll();
  ReturnUnused();
  StartThoseThatFit();
  usleep(kTurnUs);
}

void PromptPool::TakeArrived() {
  pollfd arrived = {front_->descriptor(), POLLIN, 0};
  while (poll(&arrived, 1, 0) > 0) {
    std::string request;
    const int client = front_->TakeOne(&request);
    if (client >= 0) waiting_.push_back({client, SlabsOf(request)});
  }
}

void PromptPool::Want() {
  uint32_t want = 0;
  for (const Completion& c : running_) want += c.slabs;
  for (const Completion& c : waiting_) want += c.slabs;
  if (want == want_) return;
  want_ = want;
  Require(fs_kv_want(want), "fs_kv_want");
}

void PromptPool::Poll() {
  fs_kv_change changes[64];
  const int count = fs_kv_poll(changes, 64);
  if (count < 0) Require(-count, "fs_kv_poll");
  for (int i = 0; i < count; ++i) {
    Slab& slab = slabs_[changes[i].view_index];
    if (changes[i].kind == FS_KV_ASKED_BACK) {
      ++asked_;
      slab.leaving = true;
    } else {
      slab = {};
      slab.held = true;
    }
  }
  // Gives the shim a chance to look for a daemon that was lost.
  if (const int woken = fs_kv_wait(0); woken < 0 && woken != -FS_NO_DAEMON) {
    Require(-woken, "fs_kv_wait");
  }
}

void PromptPool::ReturnUnused() {
  for (uint32_t v = 1; v < slabs_.size(); ++v) {
    if (!slabs_[v].leaving || slabs_[v].used) continue;
    slabs_[v] = {};
    Require(fs_kv_return_slab(v), "fs_kv_return_slab");
  }
}

std::vector<uint32_t> PromptPool::FreeSlabs() const {
  std::vector<uint32_t> free;
  for (uint32_t v = 1; v < slabs_.size(); ++v) {
    const Slab& slab = slabs_[v];
    if (slab.held && !slab.leaving && !slab.used) free.push_back(v);
  }
  return free;
}

void PromptPool::StartThoseThatFit() {
  std::vector<uint32_t> free = FreeSlabs();
  while (!waiting_.empty() && waiting_.front().slabs <= free.size()) {
    Completion& next = waiting_.front();
    next.word = ++words_;
    next.held.assign(free.end() - next.slabs, free.end());
    free.resize(free.size() - next.slabs);
    for (const uint32_t v : next.held) {
      slabs_[v].used = true;
      ranks_->Fill(v, next.word);
      Require(fs_kv_publish(v, kAllBlocks), "fs_kv_publish");
    }
    ranks_->Sync();
    ranks_->Finish();
    running_.push_back(next);
    waiting_.pop_front();
  }
}

void PromptPool::Finish() {
  for (const Completion& c : running_) {
    for (const uint32_t v : c.held) {
      ranks_->Check(v, c.word);
      slabs_[v].used = false;
      Require(fs_kv_publish(v, 0), "fs_kv_publish");
    }
  }
  ranks_->Finish();
  for (const Completion& c : running_) HttpFront::Complete(c.client);
  running_.clear();
}

std::string PromptPool::Stats() const {
  uint32_t held = 0;
  for (const Slab& slab : slabs_) held += slab.held;
  char text[120];
  snprintf(text, sizeof(text), "running=%zu waiting=%zu held=%u asked=%" PRIu64,
           running_.size(), waiting_.size(), held, asked_);
  return text;
}

}  // namespace stock_engine
