#include "tools/lab/sim/simulated_engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fineserve::sim {

uint64_t Engine::waiting_blocks() const {
  uint64_t blocks = 0;
  for (const Sequence& s : waiting_) {
    blocks += BlocksFor(s.work.prompt + s.generated);
  }
  return blocks;
}

// --- Planning ---

bool Engine::Plan() {
  uint32_t budget = limits_.chunk_tokens;
  const uint64_t preempted_before = preemptions_;
  for (Sequence& s : running_) s.planned = 0;
  blocks_->BeginStep();
  PlanRunning(&budget);
  // A sequence that was just preempted must not be planned again in the same
  // step.
  if (preemptions_ == preempted_before) PlanWaiting(&budget);
  return budget < limits_.chunk_tokens;
}

void Engine::PlanRunning(uint32_t* budget) {
  for (size_t at = 0; at < running_.size() && *budget > 0; ++at) {
    const uint32_t tokens = std::min(running_[at].left(), *budget);
    bool provided = Provide(&running_[at], tokens);
    while (!provided) {
      const bool itself = at + 1 == running_.size();
      PreemptLast();
      if (itself) return;
      provided = Provide(&running_[at], tokens);
    }
    running_[at].planned = tokens;
    *budget -= tokens;
  }
}

void Engine::PlanWaiting(uint32_t* budget) {
  while (!waiting_.empty() && *budget > 0 &&
         running_.size() < limits_.max_batch) {
    Sequence& s = waiting_.front();
    s.computed = s.work.cached;
    const uint32_t tokens = std::min(s.left(), *budget);
    if (!Provide(&s, tokens)) return;
    s.planned = tokens;
    *budget -= tokens;
    running_.push_back(std::move(s));
    waiting_.pop_front();
  }
}

// Takes blocks for `tokens` more positions. False if there are too few.
bool Engine::Provide(Sequence* s, uint32_t tokens) {
  const uint32_t wanted = BlocksFor(uint64_t{s->computed} + tokens);
  if (wanted <= s->held_blocks) return true;
  if (!blocks_->Allocate(wanted - s->held_blocks, &s->blocks)) return false;
  s->held_blocks = wanted;
  return true;
}

void Engine::PreemptLast() {
  Sequence last = std::move(running_.back());
  running_.pop_back();
  blocks_->Free(&last.blocks);
  last.held_blocks = last.computed = last.planned = 0;
  ++preemptions_;
  waiting_.push_front(std::move(last));
}

// --- A run of steps ---

// Returns the blocks that the steps after the first take, for up to `steps`
// steps.
uint64_t Engine::BlocksOfRun(uint64_t steps) const {
  uint64_t blocks = 0;
  for (const Sequence& s : running_) {
    blocks += BlocksFor(s.computed + steps) - s.held_blocks;
  }
  return blocks;
}

uint32_t Engine::StepsOfRun(uint32_t most_steps, uint64_t most_blocks) const {
  // A waiting sequence is tried again in each step.
  if (!waiting_.empty() && running_.size() < limits_.max_batch) return 1;
  uint32_t steps = most_steps;
  for (const Sequence& s : running_) {
    if (!s.decodes()) return 1;
    steps = std::min(steps, s.work.output - s.generated);
  }
  if (steps <= 1 || BlocksOfRun(steps) <= most_blocks) return steps;
  uint32_t fits = 1;
  while (fits + 1 < steps) {
    const uint32_t middle = fits + (steps - fits) / 2;
    (BlocksOfRun(middle) <= most_blocks ? fits : steps) = middle;
  }
  return fits;
}

void Engine::Begin(Micros now, double slowdown, uint32_t most_steps,
                   uint64_t most_blocks) {
  uint64_t prefill = 0, decodes = 0;
  for (const Sequence& s : running_) {
    if (s.planned == 0) continue;
    (s.decodes() ? decodes : prefill) += s.planned;
  }
  begun_at_ = now;
  step_us_ = step_time_(prefill, decodes, slowdown);
  steps_ = StepsOfRun(std::max(most_steps, 1u),
                      std::min(most_blocks, blocks_->free_blocks()));
  ends_ = now + steps_ * step_us_;
  completed_ = 0;
  provided_ = 1;
}

// Takes blocks step by step and sequence by sequence, so that each block comes
// from the same slab as without runs.
void Engine::TakeBlocksOfStep(uint32_t step) {
  blocks_->BeginStep();
  for (Sequence& s : running_) {
    const uint64_t tokens = uint64_t{s.computed} - completed_ + step + 1;
    if (tokens <= uint64_t{s.held_blocks} * limits_.block_tokens) continue;
    blocks_->Allocate(1, &s.blocks);  // StepsOfRun has seen to it
    ++s.held_blocks;
  }
}

void Engine::AdvanceTo(Micros now, bool begun) {
  if (steps_ <= 1) return;
  const Micros passed = now - begun_at_;
  const auto completed = now >= ends_ ? steps_
                                      : static_cast<uint32_t>(std::min<Micros>(
                                            passed / step_us_, steps_ - 1));
  const bool under_way = begun || passed % step_us_ > 0;
  const uint32_t provided = std::min(steps_, completed + (under_way ? 1 : 0));
  for (; provided_ < provided; ++provided_) TakeBlocksOfStep(provided_);
  const uint32_t more = completed - completed_;
  if (more == 0) return;
  for (Sequence& s : running_) {
    s.computed += more;
    s.generated += more;
  }
  completed_ = completed;
}

void Engine::Cut(Micros now, bool begun) {
  const Micros passed = now - begun_at_;
  const bool under_way = begun || passed % step_us_ > 0;
  const Micros steps = passed / step_us_ + (under_way ? 1 : 0);
  if (steps >= steps_) return;
  steps_ = static_cast<uint32_t>(std::max<Micros>(steps, 1));
  ends_ = begun_at_ + steps_ * step_us_;
}

void Engine::Slow(Micros now, bool begun, double ratio) {
  Cut(now, begun);
  const double left = static_cast<double>(ends_ - now) * ratio;
  ends_ = now + static_cast<Micros>(std::ceil(left - kRounding));
}

void Engine::End(std::vector<Token>* tokens) {
  for (; provided_ < steps_; ++provided_) TakeBlocksOfStep(provided_);
  // If the run was cut at its end, AdvanceTo may have applied all of it
  // already.
  const bool shown = completed_ == steps_;
  const uint32_t alike = shown ? 0 : steps_ - 1 - completed_;
  bool any_last = false;
  for (Sequence& s : running_) {
    if (s.planned == 0) continue;
    if (!shown) {
      s.computed += alike + s.planned;
      s.generated += alike;
      if (s.left() > 0) continue;
      ++s.generated;
    }
    tokens_ += steps_;
    const bool last = s.generated == s.work.output;
    if (s.generated == 1 || last) {
      tokens->push_back({s.work.id, s.generated, last});
    }
    if (last) blocks_->Free(&s.blocks);
    any_last = any_last || last;
  }
  steps_done_ += steps_;
  steps_ = 0;
  if (!any_last) return;
  running_.erase(std::remove_if(running_.begin(), running_.end(),
                                [](const Sequence& s) {
                                  return s.generated == s.work.output;
                                }),
                 running_.end());
}

}  // namespace fineserve::sim
