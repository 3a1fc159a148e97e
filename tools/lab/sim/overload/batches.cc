#include "tools/lab/sim/overload/batches.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace fineserve::sim {
namespace {

constexpr uint64_t kFitSeed = 1;

void AddChunk(Micro* m, Sequence* q, double tokens) {
  const bool decodes = q->decodes();
  m->chunks.push_back({q, tokens, decodes});
  ++q->in_flight;
  if (decodes) {
    m->load.AddDecode(q->length());
  } else {
    m->load.AddPrompt(q->planned, tokens);
    q->planned += tokens;
  }
}

}  // namespace

Batches::Batches(const ClusterSetup& setup,
                 std::function<void(Unit*, double)> try_at)
    : s_(setup), try_at_(std::move(try_at)) {
  if (s_.overload == Overload::kMerge && s_.lookahead) {
    cost_ = FitBatchCost(s_.step, kFitSeed);
  }
}

Micro Batches::Next(Unit* u, double now) {
  now_ = now;
  const bool ahead = LooksAhead(*u);
  const double target_us = ahead ? BalancedUs(*u) : 0;
  Micro m;
  for (size_t i = 0; i < u->stages() && m.chunks.empty(); ++i) {
    m.slot = static_cast<uint32_t>((u->next_slot + i) % u->stages());
    if (u->slot_busy[m.slot]) continue;
    AddRunning(u, ahead, target_us, &m);
    AddWaiting(u, target_us, &m);
  }
  if (m.chunks.empty()) return m;
  u->next_slot = static_cast<uint32_t>((m.slot + 1) % u->stages());
  return m;
}

bool Batches::Provide(Unit* u, Sequence* q) {
  const double wanted = Rounded(q->length() + 1);
  while (u->used + wanted - q->held > u->capacity) {
    if (!Preempt(u, q)) return false;
    if (q->held == 0) return false;  // itself
  }
  u->used += wanted - q->held;
  q->held = wanted;
  return true;
}

bool Batches::Preempt(Unit* u, Sequence* asker) {
  for (size_t i = u->running.size(); i-- > 0;) {
    Sequence* q = u->running[i];
    if (q->in_flight > 0) continue;
    if (q != asker && q->ready > now_) continue;
    ++preemptions_;
    u->running.erase(u->running.begin() + static_cast<ptrdiff_t>(i));
    u->used -= q->held;
    q->runs = false;
    if (s_.overload == Overload::kSwap && q->filled >= q->target) {
      u->swapped.PushBack(q);
      q->in_host = q->held;
      q->held = 0;
      return true;
    }
    q->held = q->planned = q->filled = 0;
    q->target = q->length();
    u->waiting.PushFront(q);
    return true;
  }
  return false;
}

bool Batches::LooksAhead(const Unit& u) const {
  return s_.overload == Overload::kMerge && s_.lookahead && u.stages() > 1;
}

double Batches::BalancedUs(const Unit& u) const {
  std::vector<LookaheadChunk> all;
  for (const Sequence* q : u.running) {
    if (q->decodes()) all.push_back({q->length(), 1});
  }
  double left = static_cast<double>(u.stages() * s_.chunk_tokens - all.size());
  const auto add = [&](const Sequence* q) {
    const double tokens = std::min(left, q->target - q->planned);
    if (tokens > 0) all.push_back({q->planned, tokens});
    left -= std::max(0.0, tokens);
  };
  for (const Sequence* q : u.running) {
    if (!q->decodes()) add(q);
  }
  double room = (1 - kWatermark) * u.capacity - u.used;
  for (const Sequence* q : u.waiting) {
    room -= Rounded(q->length() + 1);
    if (room < 0 || left <= 0) break;
    add(q);
  }
  if (all.empty()) return 0;
  // Allows a third more than a chunk, so that a number of full chunks stays the
  // same.
  const auto pieces = Balance(cost_, all, s_.chunk_tokens * 4 / 3.);
  double most = 0;
  for (const auto& p : pieces) most = std::max(most, cost_.Us(p));
  const auto least = static_cast<double>(u.stages());
  return pieces.size() >= u.stages() ? most
                                     : std::min(most, cost_.Us(all) / least);
}

double Batches::Room(const Micro& m, const Sequence& q,
                     double target_us) const {
  const double left = q.target - q.planned;
  const double chunk = s_.chunk_tokens - m.load.tokens;
  if (target_us == 0) return std::min(left, chunk);
  // Solves by bisection of the cost as printed in the paper.
  const auto cost = [&](double tokens) {
    return cost_.Us(m.load.pairs + m.load.context + q.planned * tokens +
                        (tokens * tokens + tokens) / 2,
                    m.load.tokens + tokens, m.load.chunks + 1);
  };
  double low = 0, high = std::min(left, 4. / 3 * s_.chunk_tokens);
  if (cost(high) <= target_us) return high;
  while (high - low > 1) {
    const double middle = (low + high) / 2;
    (cost(middle) <= target_us ? low : high) = middle;
  }
  if (low >= kBlockTokens) return std::floor(low);
  // A few tokens are not worth a chunk, unless the batch is empty.
  return m.load.tokens > 0 ? 0 : std::min(left, kBlockTokens);
}

void Batches::AddRunning(Unit* u, bool ahead, double target_us, Micro* m) {
  // Sequences that decode come first. Uses a copy, because preemption changes
  // the list.
  const auto may_add = [&](const Sequence& q) {
    return q.runs && !q.moves && q.ready <= now_;
  };
  const auto is_full = [&] {
    return m->load.tokens >= s_.chunk_tokens && target_us == 0;
  };
  const std::vector<Sequence*> running = u->running;
  std::vector<Sequence*> fill;
  for (Sequence* q : running) {
    if (!may_add(*q)) continue;
    if (!q->decodes()) {
      fill.push_back(q);
      continue;
    }
    if (is_full()) return;
    if (q->slot != m->slot || q->in_flight > 0) continue;
    if (Provide(u, q)) AddChunk(m, q, 1);
  }
  for (Sequence* q : fill) {
    if (is_full()) return;
    // A pipeline fills the chunks of a prompt in order, stage by stage.
    if (!ahead && (q->slot != m->slot || q->in_flight > 0)) continue;
    const double tokens = may_add(*q) ? Room(*m, *q, target_us) : 0;
    if (tokens >= 1) AddChunk(m, q, tokens);
  }
}

void Batches::AddSwapped(Unit* u, uint32_t slot) {
  while (!u->swapped.empty()) {
    Sequence* q = u->swapped.front();
    const double tokens = q->in_host;
    if (!Fits(*u, tokens)) return;
    u->swapped.PopFront();
    Enter(u, q, tokens, slot);
    u->host_free = std::max(u->host_free, now_) +
                   tokens * static_cast<double>(s_.token_bytes) / s_.host_link;
    q->ready = u->host_free;
    try_at_(u, q->ready);
  }
}

void Batches::AddWaiting(Unit* u, double target_us, Micro* m) {
  AddSwapped(u, m->slot);
  while (u->swapped.empty() && !u->waiting.empty() &&
         u->running.size() < s_.most_sequences * u->stages()) {
    Sequence* q = u->waiting.front();
    const double tokens = Rounded(q->length() + 1);
    if (!Fits(*u, tokens)) return;
    const double room = Room(*m, *q, target_us);
    if (room < 1) return;
    u->waiting.PopFront();
    Enter(u, q, tokens, m->slot);
    AddChunk(m, q, room);
  }
}

}  // namespace fineserve::sim
