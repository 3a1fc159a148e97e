#include "tools/lab/engines/tinyserve/engine/engine.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tinyserve {
namespace {

// When requests wait and no block is free, the time until the next try, unless
// a change of leases is announced earlier.
constexpr std::chrono::milliseconds kRetry{50};

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Engine::Engine(const EngineSettings& settings, BlockSource* blocks,
               KvStore* store, Weights* weights)
    : settings_(settings),
      blocks_(blocks),
      store_(store),
      weights_(weights),
      scheduler_(settings.limits, blocks) {}

uint64_t Engine::Submit(const std::vector<Token>& prompt, const Wanted& wanted,
                        Listener listener) {
  const Time arrived = Clock::now();
  uint64_t id;
  {
    const std::lock_guard lock(mutex_);
    id = next_id_++;
  }
  Do([this, id, arrived, prompt, wanted, listener = std::move(listener)] {
    Enlist(id, arrived, prompt, wanted, listener);
  });
  return id;
}

void Engine::Abort(uint64_t id) {
  Do([this, id] { GiveUp(id); });
}

void Engine::Do(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(task));
  }
  posted_.notify_one();
}

void Engine::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_one();
}

Metrics Engine::metrics() {
  const std::lock_guard lock(mutex_);
  return metrics_;
}

void Engine::Run() {
  if (watches_leases_) {
    watch_ = std::make_unique<LeaseWatch>([this] { Do([] {}); });
  }
  Wait wait = Wait::kNot;
  for (Tasks tasks; TakeInbox(wait, &tasks); tasks.clear()) {
    for (const auto& task : tasks) task();
    wait = holding_ ? Wait::kUntilPosted : StepOrRest();
  }
  watch_.reset();
  scheduler_.RemoveAll();
}

bool Engine::TakeInbox(Wait wait, Tasks* tasks) {
  std::unique_lock lock(mutex_);
  const auto posted = [this] { return !inbox_.empty() || stopping_; };
  if (wait == Wait::kUntilPosted) posted_.wait(lock, posted);
  if (wait == Wait::kBriefly) posted_.wait_for(lock, kRetry, posted);
  tasks->swap(inbox_);
  return !stopping_;
}

Engine::Wait Engine::StepOrRest() {
  // A step would bring the engine's memory back to the GPU.
  if (blocks_->IsAway() && scheduler_.waiting() + scheduler_.running() == 0) {
    if (watch_ != nullptr) watch_->Arm();
    return Wait::kUntilPosted;
  }
  blocks_->BeginStep();
  const std::vector<Work> step = scheduler_.Schedule();
  if (!step.empty()) {
    Step(step);
    HoldIfAsked();
    return holding_ ? Wait::kUntilPosted : Wait::kNot;
  }
  blocks_->EndStep();
  ShowState();
  pacer_.Rest();
  if (watch_ != nullptr) watch_->Arm();
  return scheduler_.waiting() > 0 ? Wait::kBriefly : Wait::kUntilPosted;
}

void Engine::Enlist(uint64_t id, Time arrived, const std::vector<Token>& prompt,
                    const Wanted& wanted, const Listener& listener) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->arrived = arrived;
  sequence->wanted = wanted;
  sequence->listener = listener;
  sequence->prompt_tokens = static_cast<uint32_t>(prompt.size());
  sequence->states.push_back(FirstState(settings_.model, wanted.seed));
  for (const Token token : prompt) sequence->Append(token);
  scheduler_.Add(std::move(sequence));
}

void Engine::GiveUp(uint64_t id) {
  if (!scheduler_.Remove(id)) return;
  const std::lock_guard lock(mutex_);
  ++metrics_.finished_abort;
}

bool Engine::Corrupt() {
  const Sequence* sequence = scheduler_.FirstRunning();
  if (sequence == nullptr || sequence->computed == 0) return false;
  store_->Corrupt(sequence->blocks[0], 0);
  return true;
}

void Engine::HoldAfter(uint32_t tokens, std::function<void()> holding) {
  hold_after_ = tokens;
  on_holding_ = std::move(holding);
}

void Engine::HoldIfAsked() {
  const Sequence* sequence = scheduler_.FirstRunning();
  if (hold_after_ == 0 || sequence == nullptr ||
      sequence->chosen() < hold_after_) {
    return;
  }
  hold_after_ = 0;
  holding_ = true;
  on_holding_();
}

void Engine::Continue() {
  holding_ = false;
  pacer_.Rest();
}

void Engine::Step(const std::vector<Work>& step) {
  const Time begin = Clock::now();
  const Time end = pacer_.End(begin, settings_.cost.Of(step));
  CountWork(step, begin);
  const std::vector<Choice> choices = Execute(step);
  blocks_->EndStep();
  AwaitEnd(end);
  HandOut(choices);
  ShowState();
}

// Writes and reads KV. Returns when the device has finished.
std::vector<Engine::Choice> Engine::Execute(const std::vector<Work>& step) {
  std::vector<Choice> choices;
  choices.reserve(step.size());  // reads point into it
  for (const Work& work : step) {
    const Sequence& s = *work.sequence;
    store_->Write(s.blocks, s.computed, &s.states[s.computed + 1], work.tokens);
    if (!work.chooses()) continue;
    choices.push_back({work.sequence, 0});
    QueueReads(&choices.back(), IsLast(s));
  }
  store_->Finish();
  const State damage = weights_->Damage();
  for (Choice& choice : choices) choice.read += damage;
  for (const Work& work : step) work.sequence->computed += work.tokens;
  return choices;
}

// True if the next token ends the answer, provided that its KV is right.
bool Engine::IsLast(const Sequence& sequence) const {
  const bool may_end = MayEnd(sequence.wanted, sequence.chosen());
  return sequence.chosen() + 1 >= sequence.wanted.most_tokens ||
         Choose(sequence.states.back(), may_end) == kEndOfText;
}

void Engine::QueueReads(Choice* choice, bool all) {
  Sequence* sequence = choice->sequence;
  const auto newest = static_cast<uint32_t>((sequence->tokens.size() - 1) /
                                            settings_.limits.block_tokens);
  ReadBlock(choice, newest);
  const uint32_t more =
      all ? newest : std::min(newest, settings_.checked_blocks);
  for (uint32_t i = 0; i < more; ++i) {
    ReadBlock(choice, sequence->next_check++ % newest);
  }
}

// Adds the digest itself for the newest position, and only the digest's error
// for all others.
void Engine::ReadBlock(Choice* choice, uint32_t index) {
  const Sequence& s = *choice->sequence;
  const uint32_t block_tokens = settings_.limits.block_tokens;
  const uint32_t first = index * block_tokens;
  const auto newest = static_cast<uint32_t>(s.tokens.size() - 1);
  const uint32_t end = std::min(first + block_tokens, newest + 1);
  for (uint32_t position = first; position < end; ++position) {
    if (position != newest) choice->read -= s.states[position + 1];
  }
  store_->Read(s.blocks[index], end - first, &choice->read);
}

void Engine::AwaitEnd(Time end) {
  const std::chrono::nanoseconds late = pacer_.Late(Clock::now());
  if (late.count() == 0) return std::this_thread::sleep_until(end);
  const std::lock_guard lock(mutex_);
  ++metrics_.late_steps;
  metrics_.late_seconds += Seconds(late);
}

void Engine::HandOut(const std::vector<Choice>& choices) {
  const Time now = Clock::now();
  for (const Choice& choice : choices) {
    Sequence* sequence = choice.sequence;
    const bool may_end = MayEnd(sequence->wanted, sequence->chosen());
    const Token token = Choose(choice.read, may_end);
    sequence->Append(token);
    const Finish finish = FinishOf(*sequence, token);
    CountToken(sequence, now, finish);
    sequence->listener(token, finish);
    if (finish != Finish::kNot) scheduler_.Remove(sequence->id);
  }
}

Finish Engine::FinishOf(const Sequence& sequence, Token token) {
  if (token == kEndOfText) return Finish::kStop;
  const bool full = sequence.chosen() >= sequence.wanted.most_tokens;
  return full ? Finish::kLength : Finish::kNot;
}

void Engine::CountToken(Sequence* sequence, Time now, Finish finish) {
  const std::lock_guard lock(mutex_);
  ++metrics_.generation_tokens;
  if (sequence->chosen() == 1) {
    metrics_.prompt_tokens += sequence->prompt_tokens;
    metrics_.first_token.Observe(Seconds(now - sequence->arrived));
    metrics_.prefill_time.Observe(Seconds(now - sequence->started));
  } else {
    metrics_.inter_token.Observe(Seconds(now - sequence->last_token_at));
  }
  sequence->last_token_at = now;
  if (finish == Finish::kNot) return;
  metrics_.end_to_end.Observe(Seconds(now - sequence->arrived));
  ++(finish == Finish::kStop ? metrics_.finished_stop
                             : metrics_.finished_length);
}

void Engine::CountWork(const std::vector<Work>& step, Time now) {
  uint64_t tokens = 0;
  const std::lock_guard lock(mutex_);
  for (const Work& work : step) {
    tokens += work.tokens;
    Sequence* sequence = work.sequence;
    if (sequence->started != Time{}) continue;
    sequence->started = now;
    metrics_.queue_time.Observe(Seconds(now - sequence->arrived));
  }
  metrics_.iteration_tokens.Observe(static_cast<double>(tokens));
}

void Engine::ShowState() {
  const auto used = static_cast<double>(blocks_->used_blocks());
  const auto held = static_cast<double>(blocks_->held_blocks());
  const std::lock_guard lock(mutex_);
  metrics_.running = scheduler_.running();
  metrics_.waiting = scheduler_.waiting();
  metrics_.kv_usage = held == 0 ? 0 : used / held;
  metrics_.preemptions = scheduler_.preemptions();
}

}  // namespace tinyserve
