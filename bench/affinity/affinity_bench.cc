// Measures the choice of a replica that has a prompt's beginning cached: see
// kQuestion.

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report/report.h"
#include "daemon/proxy/replica_choice/prefix_index.h"
#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::bench {
namespace {

using proxy::Candidate;
using proxy::PrefixIndex;
using proxy::PromptPrefix;
using proxy::RecentPrefill;

constexpr char kQuestion[] =
    R"(What does a replica's prefix cache gain by choice?

Chats of several turns go to four replicas of one model, in virtual time, by the
proxy's own choice (OrderReplicas, PrefixIndex). An engine prefills one prompt
after the other, 8 ms and 0.11 ms for each token that it has not cached (the
authors' profile of an 8B); its cache holds --cache tokens, the longest unused
go first. Decoding is left out: it is the same for all. Waits are known exactly.

A chat has a system prompt of 2,000 tokens, one of eight or, with --hot, mostly
the same; on average six turns of 200 tokens and answers of 300, and 20 s
between them. Load is relative to what four replicas prefill without a cache.

Compared: round robin; the least wait (FineServe before); the session's own
replica, whatever its wait (as gateways' session affinity); the longest prefix,
whatever the wait; and the wait less what the cached tokens save, plus a tenth of
what the replica prefilled lately (FineServe).)";

constexpr int kReplicas = 4;
constexpr double kBaseUs = 8000, kTokenUs = 110;
constexpr uint32_t kSystemTokens = 2000, kApps = 8;
constexpr double kTurns = 6, kUserTokens = 200, kAnswerTokens = 300;
constexpr double kThinkUs = 20e6;
constexpr size_t kBytesOfToken = 4;
constexpr double kLoads[] = {0.5, 0.8, 1.1, 1.4};
constexpr int kChats = 1500;

enum class Policy { kRoundRobin, kLeastWait, kSession, kPrefix, kBoth };
constexpr std::pair<Policy, const char*> kPolicies[] = {
    {Policy::kRoundRobin, "round robin"},
    {Policy::kLeastWait, "least wait"},
    {Policy::kSession, "session's replica"},
    {Policy::kPrefix, "longest prefix"},
    {Policy::kBoth, "fineserve"}};

struct Turn {
  double at_us;
  int chat;
  std::string prompt;  // kBytesOfToken bytes are one token
  uint32_t answer_tokens;
  uint32_t tokens() const {
    return static_cast<uint32_t>(prompt.size() / kBytesOfToken);
  }
};

uint64_t Ns(double us) { return static_cast<uint64_t>(us * 1000); }

// An engine: its queue of prompts, and its prefix cache, in blocks of text.
class Replica {
 public:
  explicit Replica(size_t cache_tokens)
      : most_blocks_(cache_tokens * kBytesOfToken / PromptPrefix::kBlockBytes) {
  }

  double WaitUs(double now_us) const {
    return std::max(0.0, free_us_ - now_us);
  }

  // Returns the time of the first token.
  double Serve(const Turn& turn, const PromptPrefix& prefix) {
    const uint32_t cached = prefix.TokensOf(Cached(prefix), turn.tokens());
    hit_tokens += cached;
    all_tokens += turn.tokens();
    free_us_ = std::max(free_us_, turn.at_us) + kBaseUs +
               kTokenUs * (turn.tokens() - cached);
    for (const uint64_t block : prefix.blocks()) Keep(block);
    return free_us_;
  }

  double hit_tokens = 0, all_tokens = 0;
  PrefixIndex index;  // what the proxy believes of it
  RecentPrefill recent;

 private:
  size_t Cached(const PromptPrefix& prefix) const {
    size_t n = 0;
    for (const uint64_t block : prefix.blocks()) {
      if (blocks_.count(block) == 0) break;
      ++n;
    }
    return n;
  }
  void Keep(uint64_t block) {
    const auto known = blocks_.find(block);
    if (known != blocks_.end()) order_.erase(known->second);
    order_.push_front(block);
    blocks_[block] = order_.begin();
    if (blocks_.size() <= most_blocks_) return;
    blocks_.erase(order_.back());
    order_.pop_back();
  }

  const size_t most_blocks_;
  double free_us_ = 0;
  std::list<uint64_t> order_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> blocks_;
};

// Returns a text that is the same for the same seed.
std::string TextOf(uint64_t seed, double tokens) {
  std::mt19937_64 random(seed);
  std::string text(static_cast<size_t>(tokens) * kBytesOfToken, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 26);
  return text;
}

// Returns all turns of all chats, by time. `load` refers to prefill time
// without a cache.
std::vector<Turn> MakeTurns(double load, bool hot, std::mt19937_64* random) {
  std::vector<Turn> turns;
  double prefill_us = 0;
  std::vector<double> begins;
  for (int chat = 0; chat < kChats; ++chat) {
    const bool same = hot && (*random)() % 10 < 7;
    std::string history = TextOf(same ? 0 : (*random)() % kApps, kSystemTokens);
    double at = 0;
    std::geometric_distribution<int> more(1 / kTurns);
    std::exponential_distribution<double> user(1 / kUserTokens),
        answer(1 / kAnswerTokens), think(1 / kThinkUs);
    for (int n = more(*random) + 1; n > 0; --n) {
      history += TextOf((*random)(), 1 + user(*random));
      const double answers = 1 + answer(*random);
      turns.push_back({at, chat, history, static_cast<uint32_t>(answers)});
      prefill_us += kBaseUs + kTokenUs * turns.back().tokens();
      history += TextOf((*random)(), answers);
      at += think(*random);
    }
    begins.push_back(0);
  }
  // Chats begin at the rate that gives the load.
  const double span_us = prefill_us / kReplicas / load;
  std::uniform_real_distribution<double> begin(0, span_us);
  for (double& b : begins) b = begin(*random);
  for (Turn& turn : turns) turn.at_us += begins[turn.chat];
  std::sort(turns.begin(), turns.end(),
            [](const Turn& a, const Turn& b) { return a.at_us < b.at_us; });
  return turns;
}

size_t Choose(Policy policy, const Turn& turn, const PromptPrefix& prefix,
              size_t number, std::vector<Replica>* replicas) {
  if (policy == Policy::kRoundRobin) return number % kReplicas;
  if (policy == Policy::kSession) return turn.chat % kReplicas;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < replicas->size(); ++i) {
    Replica& replica = (*replicas)[i];
    const double known = replica.index.Known("m", prefix, turn.tokens());
    Candidate c{.place = i, .load = replica.WaitUs(turn.at_us)};
    if (policy != Policy::kPrefix) c.cost = replica.WaitUs(turn.at_us);
    if (policy != Policy::kLeastWait) c.cost -= known * kTokenUs;
    if (policy == Policy::kBoth) {
      c.cost += kTokenUs * RecentPrefill::kShare *
                replica.recent.Tokens(Ns(turn.at_us));
    }
    candidates.push_back(c);
  }
  proxy::OrderReplicas(&candidates);
  return candidates.front().place;
}

struct Outcome {
  double mean_ms, p99_ms, hit;
};

Outcome Run(Policy policy, const std::vector<Turn>& turns,
            size_t cache_tokens) {
  std::vector<Replica> replicas;
  for (int i = 0; i < kReplicas; ++i) replicas.emplace_back(cache_tokens);
  std::vector<double> ttfts;
  double sum = 0;
  for (size_t n = 0; n < turns.size(); ++n) {
    PromptPrefix prefix;
    prefix.Add(turns[n].prompt);
    Replica& to = replicas[Choose(policy, turns[n], prefix, n, &replicas)];
    const uint32_t known = to.index.Known("m", prefix, turns[n].tokens());
    to.recent.Sent(turns[n].tokens() - known, Ns(turns[n].at_us));
    to.index.Sent("m", prefix, turns[n].tokens());
    ttfts.push_back((to.Serve(turns[n], prefix) - turns[n].at_us) / 1000);
    sum += ttfts.back();
  }
  std::sort(ttfts.begin(), ttfts.end());
  double hit = 0, all = 0;
  for (const Replica& replica : replicas) {
    hit += replica.hit_tokens;
    all += replica.all_tokens;
  }
  return {sum / static_cast<double>(ttfts.size()),
          ttfts[ttfts.size() * 99 / 100], 100 * hit / all};
}

About TheBench() {
  return {"affinity",
          kQuestion,
          {{"--cache", "TOKENS", "300000", "KV that a replica's cache holds"},
           {"--hot", "0|1", "0", "1: seven of ten chats have one system prompt",
            true}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  Report report("affinity");
  // The worst ratio of our policy to another, over all loads.
  std::map<Policy, double> mean, p99;
  for (const double load : kLoads) {
    std::mt19937_64 random(1);
    const std::vector<Turn> turns =
        MakeTurns(load, arguments.Count("--hot") != 0, &random);
    std::map<Policy, Outcome> all;
    for (const auto& [policy, name] : kPolicies) {
      const Outcome o = Run(policy, turns, arguments.Count("--cache"));
      all[policy] = o;
      const std::string of = absl::StrFormat("load %.1f, %s", load, name);
      report.Figure(of + ": mean TTFT (ms)", o.mean_ms);
      report.Figure(of + ": p99 TTFT (ms)", o.p99_ms);
      report.Figure(of + ": prompt tokens cached (%)", o.hit);
    }
    const Outcome& ours = all[Policy::kBoth];
    for (const auto& [policy, o] : all) {
      mean[policy] = std::max(mean[policy], ours.mean_ms / o.mean_ms);
      p99[policy] = std::max(p99[policy], ours.p99_ms / o.p99_ms);
    }
  }
  for (const auto& [policy, name] : kPolicies) {
    if (policy == Policy::kBoth) continue;
    report.Claim(absl::StrCat("mean TTFT / that by ", name, ", worst load"),
                 mean[policy], 1, Compare::kAtMost);
    report.Claim(absl::StrCat("p99 TTFT / that by ", name, ", worst load"),
                 p99[policy], 1, Compare::kAtMost);
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
