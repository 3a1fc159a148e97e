#include "tools/lab/engines/ranks/group_pool.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "tools/lab/engines/ranks/failures.h"

namespace stock_engine {
namespace {

constexpr uint32_t kBlocksPerSlab = 32;  // what it says that it uses
constexpr useconds_t kStepUs = 1000;
constexpr int kAnswerSteps = 8;
constexpr useconds_t kAwayUs = 10'000;
constexpr int kComeBackMs = 100;  // between two asks

}  // namespace

GroupPool::GroupPool(Ranks* ranks, const fs_kv_geometry& geometry,
                     uint32_t seed, bool has_weights)
    : ranks_(ranks),
      slabs_count_(geometry.slab_count),
      cap_(geometry.cap_slabs),
      random_(seed),
      slabs_(geometry.slab_count + 1),
      next_word_(seed << 20 | 1),
      has_weights_(has_weights) {}

void GroupPool::Step() {
  if (has_weights_ && !answers_) LeaveIfAsked();
  if (is_away_ && !ComeBack(/*is_needed=*/false)) {
    usleep(kAwayUs);
    return;
  }
  ++steps_;
  if (has_weights_ && OneIn(10)) UseWeights();
  if (Clock::now() >= next_want_) ChooseWant();
  Poll();
  Use();
  ReturnDrained();
  GiveSome();
  if (OneIn(300)) {
    BeIdle();
  } else {
    usleep(kStepUs);
  }
}

void GroupPool::Answer() {
  while (is_away_ && !ComeBack(/*is_needed=*/true)) LeaveIfAsked();
  answers_ = true;
  if (has_weights_) UseWeights();
  for (int i = 0; i < kAnswerSteps; ++i) Step();
  answers_ = false;
}

void GroupPool::Rest() {
  LeaveIfAsked();
  usleep(kStepUs);
  if (is_away_ && !ComeBack(/*is_needed=*/false)) return;
  if (want_ != 0) Require(fs_kv_want(0), "fs_kv_want");
  want_ = 0;
  next_want_ = Clock::now();
  Poll();
  for (uint32_t v = 1; v <= slabs_count_; ++v) {
    if (slabs_[v].held) Leave(v, 0);
  }
  ReturnDrained();
}

void GroupPool::UseWeights() {
  if (shared_word_ != 0) ranks_->Verify(shared_word_);
  ranks_->Finish();
  shared_word_ = next_word_++;
  ranks_->Write(shared_word_);
  ranks_->Sync();
  ranks_->Finish();
}

// If asked to leave, releases all blocks, which no step uses any longer.
void GroupPool::LeaveIfAsked() {
  if (fs_kv_presence() != FS_KV_ASKED_TO_LEAVE) return;
  ranks_->Sync();
  ranks_->Finish();
  if (const int result = fs_kv_leave(); result != FS_OK) {
    if (result != FS_STATE) Require(result, "fs_kv_leave");
    return;  // it was too late
  }
  slabs_.assign(slabs_.size(), {});
  want_ = 0;
  is_away_ = true;
  ++left_;
  ranks_->Leave();
}

// False if it is not back yet.
bool GroupPool::ComeBack(bool is_needed) {
  if (!is_needed && fs_kv_presence() != FS_KV_HERE) return false;
  if (fs_kv_come_back(kComeBackMs) <= 0 || !ranks_->ComeBack() ||
      fs_kv_resume() != FS_OK) {
    return false;
  }
  is_away_ = false;
  next_want_ = Clock::now();
  return true;
}

void GroupPool::ChooseWant() {
  want_ = random_() % (cap_ + 1);
  next_want_ = Clock::now() + std::chrono::milliseconds(20 + random_() % 200);
  Require(fs_kv_want(want_), "fs_kv_want");
}

void GroupPool::Poll() {
  fs_kv_change changes[64];
  const int count = fs_kv_poll(changes, 64);
  if (count < 0) Require(-count, "fs_kv_poll");
  for (int i = 0; i < count; ++i) {
    const uint32_t v = changes[i].view_index;
    if (changes[i].kind == FS_KV_ASKED_BACK) {
      ++asked_;
      if (!slabs_[v].leaving) Leave(v, random_() % 6);
      continue;
    }
    slabs_[v] = {};
    slabs_[v].held = true;
    ++gained_;
  }
}

void GroupPool::Leave(uint32_t v, uint32_t drains) {
  slabs_[v].leaving = true;
  slabs_[v].drains = drains;
}

uint32_t GroupPool::CountOpen() const {
  uint32_t open = 0;
  for (const Slab& slab : slabs_) open += slab.held && !slab.leaving;
  return open;
}

// Checks that new slabs are zero, and writes them. Checks the last word of some
// of the other slabs, and writes those again. A slab that leaves is still
// written until the step after which it is returned.
void GroupPool::Use() {
  std::vector<uint32_t> writes;
  for (uint32_t v = 1; v <= slabs_count_; ++v) {
    const Slab& slab = slabs_[v];
    if (!slab.held) continue;
    if (slab.word != 0 && !OneIn(slab.leaving ? 2 : 5)) continue;
    ranks_->Check(v, slab.word);
    ++checks_;
    writes.push_back(v);
  }
  for (const uint32_t v : writes) {
    slabs_[v].word = next_word_++;
    ranks_->Fill(v, slabs_[v].word);
    Require(fs_kv_publish(v, kBlocksPerSlab), "fs_kv_publish");
  }
  if (OneIn(20)) ranks_->Sync();  // it notices a dead rank without slabs, too
  ranks_->Finish();
}

// Returns the slabs that have drained, once every rank's device has finished
// its queue.
void GroupPool::ReturnDrained() {
  std::vector<uint32_t> drained;
  for (uint32_t v = 1; v <= slabs_count_; ++v) {
    if (!slabs_[v].leaving) continue;
    if (slabs_[v].drains > 0) {
      --slabs_[v].drains;
    } else {
      drained.push_back(v);
    }
  }
  if (drained.empty()) return;
  ranks_->Sync();
  ranks_->Finish();
  for (const uint32_t v : drained) {
    slabs_[v] = {};
    Require(fs_kv_publish(v, 0), "fs_kv_publish");
    Require(fs_kv_return_slab(v), "fs_kv_return_slab");
    ++returned_;
  }
}

// Returns slabs that the pool no longer wants, a few at a time.
void GroupPool::GiveSome() {
  uint32_t open = CountOpen();
  for (uint32_t v = 1; v <= slabs_count_ && open > want_; ++v) {
    if (!slabs_[v].held || slabs_[v].leaving || !OneIn(20)) continue;
    Leave(v, 0);
    --open;
  }
}

// Makes no step for a while, but returns the slabs that are asked back.
void GroupPool::BeIdle() {
  const auto end =
      Clock::now() + std::chrono::milliseconds(20 + random_() % 100);
  while (Clock::now() < end) {
    if (const int woken = fs_kv_wait(20); woken < 0) {
      if (woken != -FS_NO_DAEMON) Require(-woken, "fs_kv_wait");
      return;
    }
    Poll();
    for (Slab& slab : slabs_) slab.drains = 0;
    ReturnDrained();
  }
}

std::string GroupPool::Stats() const {
  uint32_t held = 0;
  for (const Slab& slab : slabs_) held += slab.held;
  char text[200];
  snprintf(text, sizeof(text),
           "steps=%" PRIu64 " checks=%" PRIu64 " gained=%" PRIu64
           " asked=%" PRIu64 " returned=%" PRIu64
           " held=%u want=%u left=%" PRIu64,
           steps_, checks_, gained_, asked_, returned_, held, want_, left_);
  return text;
}

}  // namespace stock_engine
