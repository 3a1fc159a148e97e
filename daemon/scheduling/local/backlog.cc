#include "daemon/scheduling/local/backlog.h"

#include <algorithm>

namespace fineserve::sched {

std::deque<Backlog::Prompt>::iterator Backlog::Find(RequestId id) {
  return std::find_if(prompts_.begin(), prompts_.end(),
                      [&](const Prompt& p) { return p.id == id; });
}

void Backlog::Add(RequestId id, uint32_t tokens, Micros now,
                  const Predictor& engine) {
  if (Tokens(now, engine) == 0) {
    prompts_.clear();
    tokens_ = 0;
    since_ = now;
  }
  prompts_.push_back({id, tokens});
  tokens_ += tokens;
}

void Backlog::FirstToken(RequestId id, Micros now) {
  const auto found = Find(id);
  if (found == prompts_.end()) return;
  for (auto p = prompts_.begin(); p != found + 1; ++p) tokens_ -= p->tokens;
  prompts_.erase(prompts_.begin(), found + 1);
  since_ = now;
}

void Backlog::Remove(RequestId id) {
  const auto found = Find(id);
  if (found == prompts_.end()) return;
  tokens_ -= found->tokens;
  prompts_.erase(found);
}

uint64_t Backlog::Tokens(Micros now, const Predictor& engine) const {
  const double steps =
      static_cast<double>(std::max<Micros>(now - since_, 0)) /
      static_cast<double>(std::max<Micros>(engine.FullStep(), 1));
  const double filled = steps * engine.budget_tokens();
  if (filled >= static_cast<double>(tokens_)) return 0;
  return tokens_ - static_cast<uint64_t>(filled);
}

}  // namespace fineserve::sched
