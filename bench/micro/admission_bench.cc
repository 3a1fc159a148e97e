// The cost of a scheduler's decision: see kQuestion.

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "daemon/scheduling/local/policy/adaptive_policy.h"
#include "daemon/scheduling/local/policy/testdata/fake_host.h"
#include "daemon/scheduling/local/policy/testdata/naive_batch.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(What does a decision of the local scheduler cost with n requests waiting?

A decision: one arrival joins the queue and Algorithm 2 chooses which requests
start. Ours is the incremental form (with its floor and its checks for late
requests). The naive one is the paper's loop over the waiting set, as printed,
on the same queue in the same run; being O(n^2), it ends at 10,000 requests. The
batch form, with one sort of the whole set, is between the two.

Prompts are lognormal (median 245 tokens, sigma 1), deadlines are 1 to 3 s
ahead, and a step takes 8 ms + 0.11 ms a token: far more requests wait than can
be served, which is when deciding is hard. Each decision starts one request and
1 us passes; for each request that becomes late another arrives. The queues
take turns, so that each finds the caches as a busy daemon would.

O(log n) steps take more than O(log n) time, because each step is slower beyond
the caches. For comparison an ordered set of the standard library does one
insert and one erase of its first element at the same sizes, in the same
rounds.)";

using sched::AdaptivePolicy;
using sched::FakeHost;
using sched::Micros;
using sched::Queued;
using sched::ReplicaId;
using sched::RequestId;
using sched::Waiting;

constexpr ReplicaId kEngine{1};
constexpr sched::Predictor kPredictor{{8000, 110, 60}, 2048, 32, 1000, 1.1};
constexpr double kFloorShare = 0.1;
constexpr size_t kDecisions = 20'000;

double MicrosSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now() - start)
      .count();
}

// Generates the same requests for every form of the decision.
class Arrivals {
 public:
  Queued Next(Micros now) {
    const double tokens = std::min(std::exp(length_(random_)), 32'000.0);
    const Waiting w{
        static_cast<uint32_t>(tokens) + 1, RequestId{++id_},
        now + 1'000'000 + static_cast<Micros>(random_() % 2'000'000)};
    return {w, sched::ModelId{0}, now, 0, id_ % 8};
  }

 private:
  std::mt19937_64 random_{1};
  std::normal_distribution<double> length_{5.5, 1.0};
  uint64_t id_ = 0;
};

// A policy with which n requests always wait.
class Queue {
 public:
  explicit Queue(size_t n) : size_(n) {
    host_.engines[kEngine] = {sched::ModelId{0}, kPredictor, {0, 1'000'000}};
    for (size_t i = 0; i < n; ++i) policy_.Add(arrivals_.Next(now_));
    while (policy_.NextCheck() <= now_) Decide();
    host_.engines[kEngine].caps.requests = 1;
  }

  size_t size() const { return size_; }

  // Returns the µs that one arrival and one decision take.
  double Step() {
    ++now_;
    Refill();
    const Queued arrival = arrivals_.Next(now_);
    const auto start = std::chrono::steady_clock::now();
    policy_.Add(arrival);
    policy_.Decide(now_, &host_);
    const double us = MicrosSince(start);
    ++waiting_extra_;
    Count();
    return us;
  }

  uint64_t started = 0, dropped = 0;

 private:
  void Decide() {
    policy_.Decide(now_, &host_);
    Count();
  }
  void Count() {
    const size_t begun = host_.engines[kEngine].started.size();
    started += begun;
    dropped += host_.dropped.size();
    waiting_extra_ -= static_cast<int64_t>(begun + host_.dropped.size());
    host_.Forget();
  }
  // Replaces dropped requests by new arrivals.
  void Refill() {
    for (; waiting_extra_ < 0; ++waiting_extra_) {
      policy_.Add(arrivals_.Next(now_));
    }
  }

  const size_t size_;
  Arrivals arrivals_;
  FakeHost host_;
  AdaptivePolicy policy_{kFloorShare};
  Micros now_ = 1'000'000;
  int64_t waiting_extra_ = 0;  // waiting − size_
};

// Puts the same arrivals into a std::set by length; the shortest leaves.
class TextbookSet {
 public:
  explicit TextbookSet(size_t n) {
    for (size_t i = 0; i < n; ++i) Insert(arrivals_.Next(0).waiting);
  }
  double Step() {
    const Waiting arrival = arrivals_.Next(0).waiting;
    const auto start = std::chrono::steady_clock::now();
    Insert(arrival);
    set_.erase(set_.begin());
    return MicrosSince(start);
  }

 private:
  void Insert(const Waiting& w) { set_.insert({w.tokens, w.id, w.deadline}); }
  Arrivals arrivals_;
  std::set<std::tuple<uint32_t, RequestId, Micros>> set_;
};

struct Times {
  std::vector<double> us;
  double Mean() const {
    double sum = 0;
    for (const double t : us) sum += t;
    return sum / static_cast<double>(us.size());
  }
};

std::vector<Waiting> Snapshot(size_t n) {
  Arrivals arrivals;
  std::vector<Waiting> waiting;
  for (size_t i = 0; i < n; ++i) {
    waiting.push_back(arrivals.Next(1'000'000).waiting);
  }
  return waiting;
}

// Returns the µs of one decision over the whole set; the best of `rounds`.
template <typename Form>
double WholeSet(size_t n, int rounds, Form form) {
  const std::vector<Waiting> waiting = Snapshot(n);
  double best = 1e300;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const sched::Batch batch =
        form(waiting, 1'000'000, kPredictor, sched::Caps{1, 1'000'000});
    best = std::min(best, MicrosSince(start));
    if (batch.start.size() != 1) abort();  // it measured nothing
  }
  return best;
}

std::string Of(size_t n) { return absl::StrCat(", ", n, " waiting"); }

constexpr size_t kSizes[] = {100, 10'000, 1'000'000};

// Our queue and the textbook's set, both of the same size.
struct Way {
  explicit Way(size_t n) : queue(n), set(n) {}
  Queue queue;
  TextbookSet set;
  Times ours, textbook;
};

std::vector<std::unique_ptr<Way>> Measure() {
  std::vector<std::unique_ptr<Way>> ways;
  for (const size_t n : kSizes) ways.push_back(std::make_unique<Way>(n));
  for (size_t i = 0; i < kDecisions; ++i) {
    for (const auto& way : ways) {
      way->ours.us.push_back(way->queue.Step());
      way->textbook.us.push_back(way->set.Step());
    }
  }
  return ways;
}

void ReportSize(Way* way, Report* report) {
  const std::string of = Of(way->queue.size());
  report->Figure("incremental" + of + " (decisions/s)", 1e6 / way->ours.Mean());
  report->Figure("incremental" + of + ", mean (us)", way->ours.Mean());
  report->Figure("incremental" + of + ", p50 (us)",
                 Percentile(way->ours.us, 50));
  report->Figure("incremental" + of + ", p99 (us)",
                 Percentile(way->ours.us, 99));
  report->Figure("std::set" + of + ", p50 (us)",
                 Percentile(way->textbook.us, 50));
  report->Figure("started a decision" + of,
                 static_cast<double>(way->queue.started) / kDecisions);
  report->Figure("dropped a decision" + of,
                 static_cast<double>(way->queue.dropped) / kDecisions);
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"admission", kQuestion});
  Report report("admission");
  const auto ways = Measure();
  for (const auto& way : ways) ReportSize(way.get(), &report);
  for (const size_t n : kSizes) {
    report.Figure("whole set, one sort" + Of(n) + " (us)",
                  WholeSet(n, n > 100'000 ? 2 : 20, sched::FormBatch));
  }
  report.Figure("naive" + Of(100) + " (us)",
                WholeSet(100, 200, sched::NaiveBatch));
  const double naive = WholeSet(10'000, 3, sched::NaiveBatch);
  report.Figure("naive" + Of(10'000) + " (us)", naive);
  report.Claim("naive / incremental, 10000 waiting",
               naive / ways[1]->ours.Mean(), 1000, Compare::kAtLeast);
  const double growth =
      Percentile(ways[2]->ours.us, 50) / Percentile(ways[0]->ours.us, 50);
  const double textbook = Percentile(ways[2]->textbook.us, 50) /
                          Percentile(ways[0]->textbook.us, 50);
  report.Claim("growth 100 to 1000000 waiting / that of std::set",
               growth / textbook, 1, Compare::kAtMost);
  report.Claim(
      "growth 100 to 10000 waiting (log n: 2)",
      Percentile(ways[1]->ours.us, 50) / Percentile(ways[0]->ours.us, 50), 2,
      Compare::kAtMost);
  report.Claim("growth 100 to 1000000 waiting (log n: 3)", growth, 3,
               Compare::kAtMost);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
