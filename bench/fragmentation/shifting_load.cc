#include "bench/fragmentation/shifting_load.h"

#include <deque>
#include <queue>
#include <random>
#include <utility>

namespace fineserve::bench {
namespace {

constexpr double kTick = 0.1;  // seconds
constexpr uint32_t kLoadSeed = 4;

struct Waiting {
  uint32_t tokens;
  double since;
};

struct Running {
  double ends;
  uint32_t tokens;
  Held held;
  bool operator>(const Running& other) const { return ends > other.ends; }
};

class Player {
 public:
  Player(const std::vector<Model>& models, const std::vector<uint32_t>& lengths,
         double seconds_per_token, uint64_t pool_bytes, Pool* pool)
      : models_(models),
        lengths_(lengths),
        seconds_per_token_(seconds_per_token),
        pool_bytes_(static_cast<double>(pool_bytes)),
        pool_(*pool),
        lines_(models.size()),
        used_(models.size(), 0) {}

  Story Play(const std::vector<Phase>& phases) {
    for (const Phase& phase : phases) PlayPhase(phase);
    return std::move(story_);
  }

 private:
  void PlayPhase(const Phase& phase) {
    story_.phases.emplace_back();
    const auto ticks = static_cast<int>(phase.seconds / kTick);
    for (int i = 0; i < ticks; ++i) {
      End();
      Arrive(phase);
      Begin();
      Note(ticks);
      if (i % static_cast<int>(1 / kTick) == 0) NoteSecond();
      now_ += kTick;
    }
    Story::PhaseTotal& total = story_.phases.back();
    if (total.begun > 0) {
      total.mean_wait_seconds /= static_cast<double>(total.begun);
    }
  }

  void End() {
    while (!running_.empty() && running_.top().ends <= now_) {
      const Running& r = running_.top();
      used_[r.held.model] -= Bytes(r.held.model, r.tokens);
      pool_.Drop(r.held);
      running_.pop();
    }
  }

  void Arrive(const Phase& phase) {
    for (size_t m = 0; m < models_.size(); ++m) {
      std::poisson_distribution<int> count(phase.per_second[m] * kTick);
      for (int n = count(random_); n > 0; --n) {
        lines_[m].push_back({lengths_[random_() % lengths_.size()], now_});
      }
    }
  }

  // First come, first served within a model; a model whose next request does
  // not fit does not block the others.
  void Begin() {
    for (size_t m = 0; m < models_.size(); ++m) {
      while (!lines_[m].empty()) {
        const Waiting& next = lines_[m].front();
        Running r{now_ + next.tokens * seconds_per_token_, next.tokens, {}};
        if (!pool_.Cache(m, next.tokens, &r.held)) break;
        r.held.model = m;
        used_[m] += Bytes(m, next.tokens);
        Story::PhaseTotal& total = story_.phases.back();
        total.mean_wait_seconds += now_ - next.since;
        ++total.begun;
        running_.push(std::move(r));
        lines_[m].pop_front();
      }
    }
  }

  void Note(int ticks) {
    Story::PhaseTotal& total = story_.phases.back();
    for (size_t m = 0; m < models_.size(); ++m) {
      total.used_of_pool += used_[m] / pool_bytes_ / ticks;
      total.mean_waiting += static_cast<double>(lines_[m].size()) / ticks;
    }
  }

  void NoteSecond() {
    Story::Second second{used_, {}};
    for (const auto& line : lines_) {
      second.waiting.push_back(static_cast<double>(line.size()));
    }
    story_.seconds.push_back(std::move(second));
  }

  double Bytes(size_t model, uint32_t tokens) const {
    return static_cast<double>(models_[model].token_bytes()) * tokens;
  }

  const std::vector<Model>& models_;
  const std::vector<uint32_t>& lengths_;
  const double seconds_per_token_;
  const double pool_bytes_;
  Pool& pool_;
  std::mt19937_64 random_{kLoadSeed};
  std::vector<std::deque<Waiting>> lines_;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  std::vector<double> used_;
  double now_ = 0;
  Story story_;
};

}  // namespace

Story Play(const std::vector<Model>& models, const std::vector<Phase>& phases,
           const std::vector<uint32_t>& lengths, double seconds_per_token,
           uint64_t pool_bytes, Pool* pool) {
  return Player(models, lengths, seconds_per_token, pool_bytes, pool)
      .Play(phases);
}

}  // namespace fineserve::bench
