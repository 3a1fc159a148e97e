#include "daemon/proxy/record/recorder.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

uint64_t UnixNs() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

void Recorder::Keep(size_t most_recent) {
  slots_.assign(most_recent, nullptr);
  ended_ = 0;
}

std::shared_ptr<Life> Recorder::Begin() {
  if (!on()) return nullptr;
  auto life = std::make_shared<Life>();
  if (keeps()) {
    life->live_index = live_.size();
    live_.push_back(life);
  }
  return life;
}

void Recorder::End(std::shared_ptr<Life> life) {
  if (keeps()) {
    live_.back()->live_index = life->live_index;
    std::swap(live_[life->live_index], live_.back());
    live_.pop_back();
  }
  const std::shared_ptr<const Life> ended = std::move(life);
  if (log_ != nullptr) log_->Write(ended);
  if (on_end_) on_end_(ended);
  if (!keeps()) return;
  slots_[ended_++ % slots_.size()] = ended;
  for (Follower* follower : followers_) (*follower)();
}

uint64_t Recorder::oldest() const {
  return ended_ > slots_.size() ? ended_ - slots_.size() : 0;
}

std::shared_ptr<const Life> Recorder::Ended(uint64_t number) const {
  if (number < oldest() || number >= ended_) return nullptr;
  return slots_[number % slots_.size()];
}

std::vector<std::shared_ptr<const Life>> Recorder::Kept() const {
  std::vector<std::shared_ptr<const Life>> kept(live_.begin(), live_.end());
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return a->arrived_ns > b->arrived_ns;
  });
  for (uint64_t n = ended_; n > oldest(); --n) kept.push_back(Ended(n - 1));
  return kept;
}

absl::StatusOr<std::shared_ptr<const Life>> Recorder::Find(
    absl::string_view id) const {
  std::shared_ptr<const Life> begins_so;
  bool several = false;
  for (std::shared_ptr<const Life>& life : Kept()) {
    if (life->id == id) return std::move(life);
    if (!absl::StartsWith(life->id, id)) continue;
    several |= begins_so != nullptr && begins_so->id != life->id;
    if (begins_so == nullptr) begins_so = std::move(life);
  }
  if (several) {
    return absl::InvalidArgumentError(
        "several requests have an id that begins so; give more of it");
  }
  if (begins_so != nullptr) return begins_so;
  return absl::NotFoundError(
      absl::StrCat("no such request under way or among the last ",
                   most_recent(), " that ended"));
}

Recording::~Recording() {
  if (!begun_) return;
  life_->ended_ns = clock_->NowNs();
  if (life_->ending == Ending::kNotYet) life_->ending = Ending::kClientLeft;
  recorder_->End(std::move(life_));
}

Life* Recording::life() {
  if (life_ == nullptr) life_ = std::make_shared<Life>();
  return life_.get();
}

void Recording::Begin() {
  life_ = recorder_->Begin();
  begun_ = life_ != nullptr;
  if (!begun_) return;
  life_->arrived_ns = clock_->NowNs();
  life_->arrived_unix_ns = UnixNs();
}

}  // namespace fineserve::proxy
