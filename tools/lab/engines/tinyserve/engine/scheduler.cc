#include "tools/lab/engines/tinyserve/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace tinyserve {

Scheduler::Scheduler(const Limits& limits, BlockSource* blocks)
    : limits_(limits), blocks_(blocks) {}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

std::vector<Work> Scheduler::Schedule() {
  std::vector<Work> step;
  uint32_t budget = limits_.step_tokens;
  const uint64_t preempted_before = preemptions_;
  TellExpectation();
  ScheduleRunning(&budget, &step);
  // A sequence that was just preempted must not be scheduled again in the same
  // step.
  if (preemptions_ == preempted_before) ScheduleWaiting(&budget, &step);
  return step;
}

void Scheduler::ScheduleRunning(uint32_t* budget, std::vector<Work>* step) {
  for (size_t at = 0; at < running_.size() && *budget > 0; ++at) {
    Sequence* sequence = running_[at].get();
    const uint32_t tokens = std::min(sequence->left_to_compute(), *budget);
    bool provided = Provide(sequence, tokens);
    while (!provided) {
      const bool itself = at + 1 == running_.size();
      PreemptLast();
      if (itself) return;
      provided = Provide(sequence, tokens);
    }
    step->push_back({sequence, tokens});
    *budget -= tokens;
  }
}

void Scheduler::ScheduleWaiting(uint32_t* budget, std::vector<Work>* step) {
  while (!waiting_.empty() && *budget > 0 &&
         running_.size() < limits_.most_sequences) {
    Sequence* sequence = waiting_.front().get();
    const uint32_t tokens = std::min(sequence->left_to_compute(), *budget);
    if (!Provide(sequence, tokens)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    step->push_back({sequence, tokens});
    *budget -= tokens;
  }
}

// Allocates blocks for `tokens` more positions. False if there are too few.
bool Scheduler::Provide(Sequence* sequence, uint32_t tokens) {
  const uint32_t wanted = BlocksFor(uint64_t{sequence->computed} + tokens);
  const auto held = static_cast<uint32_t>(sequence->blocks.size());
  return wanted <= held || blocks_->Allocate(wanted - held, &sequence->blocks);
}

void Scheduler::PreemptLast() {
  std::unique_ptr<Sequence> last = std::move(running_.back());
  running_.pop_back();
  blocks_->Free(last->blocks);
  last->blocks.clear();
  last->computed = 0;
  last->next_check = 0;
  ++last->preemptions;
  ++preemptions_;
  waiting_.push_front(std::move(last));
}

bool Scheduler::Remove(uint64_t id) {
  for (Sequences* list : {&running_, &waiting_}) {
    const auto found = std::find_if(list->begin(), list->end(),
                                    [&](const auto& s) { return s->id == id; });
    if (found == list->end()) continue;
    blocks_->Free((*found)->blocks);
    list->erase(found);
    return true;
  }
  return false;
}

void Scheduler::RemoveAll() {
  for (Sequences* list : {&running_, &waiting_}) {
    for (const auto& sequence : *list) blocks_->Free(sequence->blocks);
    list->clear();
  }
}

Sequence* Scheduler::FirstRunning() {
  return running_.empty() ? nullptr : running_.front().get();
}

uint32_t Scheduler::BlocksFor(uint64_t tokens) const {
  return static_cast<uint32_t>((tokens + limits_.block_tokens - 1) /
                               limits_.block_tokens);
}

// Announces the blocks that one step can take plus those with which all waiting
// requests could start.
void Scheduler::TellExpectation() {
  uint64_t blocks = BlocksFor(limits_.step_tokens) + limits_.most_sequences;
  for (const auto& sequence : waiting_) {
    blocks += BlocksFor(sequence->tokens.size());
  }
  blocks_->Expect(waiting_.empty() && running_.empty() ? 0 : blocks);
}

}  // namespace tinyserve
