#include "bench/policies/sim_engine.h"

#include <algorithm>

namespace fineserve::bench {

uint64_t SimEngine::Used() const {
  uint64_t used = 0;
  for (const Sequence& s : sequences_) used += s.filled + s.planned;
  return used;
}

void SimEngine::PlanDecodes() {
  for (Sequence& s : sequences_) s.planned = s.decodes() ? 1 : 0;
  for (size_t last = sequences_.size(); last > 0 && Used() > kv_tokens_;
       --last) {
    Sequence& s = sequences_[last - 1];
    if (s.filled == 0) continue;
    s.filled = s.planned = 0;
    ++preemptions_;
  }
}

void SimEngine::PlanPrefills() {
  uint32_t budget = chunk_tokens_;
  for (const Sequence& s : sequences_) budget -= std::min(budget, s.planned);
  uint64_t used = Used();
  for (Sequence& s : sequences_) {
    if (s.planned > 0 || s.filled >= s.goal()) continue;
    const uint32_t left = s.goal() - s.filled;
    if (used + left > kv_tokens_) break;  // in order, without overtaking
    s.planned = std::min(budget, left);
    budget -= s.planned;
    used += left;
    if (budget == 0) break;
  }
}

double SimEngine::BeginStep() {
  PlanDecodes();
  uint32_t decodes = 0;
  for (const Sequence& s : sequences_) decodes += s.planned;
  PlanPrefills();
  uint32_t tokens = 0;
  for (const Sequence& s : sequences_) tokens += s.planned;
  return truth_.base_us + truth_.per_token_us * (tokens - decodes) +
         truth_.per_sequence_us * decodes;
}

std::vector<SimEngine::Event> SimEngine::EndStep() {
  std::vector<Event> events;
  for (Sequence& s : sequences_) {
    s.filled += s.planned;
    const bool told = s.planned > 0 && s.filled >= s.goal();
    s.planned = 0;
    if (!told) continue;
    ++s.generated;
    events.push_back(
        {s.id, s.generated, s.generated == 1, s.generated == s.output});
  }
  sequences_.erase(
      std::remove_if(sequences_.begin(), sequences_.end(),
                     [](const Sequence& s) { return s.generated == s.output; }),
      sequences_.end());
  return events;
}

}  // namespace fineserve::bench
