// KunServe, Figures 12 and 13: TTFT, TPOT and SLO violations under a burst.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/figures.h"
#include "bench/paper/kunserve/kunserve_scene.h"

namespace fineserve::bench {
namespace {

using Load = KunServeSetting::Load;

// Gains in P99 TTFT over the worst and the best baseline, and the least gain
// for 72B.
constexpr double kLeastGain = 12.7, kMostGain = 72.2, kLeastGain72 = 8.4;
constexpr double kMostTpot = 1.227;  // P50, LongBench
constexpr double kViolations = 7.2;  // points, the least
constexpr double kWindow = 10;       // s, of Figure 12's lines

// `sweep`: with all links and re-read factors. The cases are short prompts,
// long ones, and long ones on the large model.
struct Case {
  bool large;
  Load load;
  bool sweep = false;
};
const Case kCases[] = {
    {false, Load::kBurstGpt, true}, {false, Load::kShareGpt},
    {false, Load::kArxiv, true},    {true, Load::kArxiv, true},
    {false, Load::kReasoning},      {true, Load::kReasoning}};

// One of each model.
bool IsQuick(const Case& c) {
  return c.load == (c.large ? Load::kArxiv : Load::kBurstGpt);
}

KunServeSetting SettingOf(const Case& c) {
  KunServeSetting setting;
  setting.large = c.large;
  setting.load = c.load;
  // The paper's bound on the mean; a stay is longer than a burst here.
  if (c.load == Load::kReasoning) setting.use = .6;
  return setting;
}

std::string NameOf(const Case& c) {
  return absl::StrCat(c.large ? "72B, " : "14B, ", Name(c.load));
}

// Returns the paper's systems, and ours with both links and with re-reads.
std::vector<OverloadSystem> SystemsOf(const Case& c) {
  std::vector<OverloadSystem> all = OverloadSystems();
  for (const Link& link : c.sweep ? Links() : std::vector<Link>()) {
    for (const double reread : {1., 4., 16.}) {
      OverloadSystem s = all[kOursNvlink];
      s.link = link;
      s.reread = reread;
      s.name = absl::StrCat("ours, ", link.name);
      if (reread > 1) absl::StrAppend(&s.name, ", re-read ", reread);
      if (s.name != all[kOursNvlink].name) all.push_back(s);
    }
  }
  OverloadSystem apart = all[kOursNvlink];
  apart.name = "ours, no peer access";
  apart.link = {"none", 0, 1};
  all.push_back(apart);
  all.push_back(Unlimited());
  return all;
}

// Returns the violations, in %, of a limit of five (chat) or ten times the P50
// of the best baseline.
Values Violations(const OverloadRuns& runs, size_t system, double scale) {
  Values values;
  for (size_t seed = 0; seed < runs.of[system].size(); ++seed) {
    double ttft = 1e9, tpot = 1e9;
    for (size_t b = 0; b < kBaselines; ++b) {
      ttft = std::min(ttft, Ttft(runs.of[b][seed], .5));
      tpot = std::min(tpot, Tpot(runs.of[b][seed], .5));
    }
    double missed = 0;
    const auto& outcomes = runs.of[system][seed].outcomes;
    for (const workload::Outcome& o : outcomes) {
      if (o.ttft_s() > scale * ttft || o.tpot_s() > scale * tpot) ++missed;
    }
    values.push_back(100 * missed / static_cast<double>(outcomes.size()));
  }
  return values;
}

// Returns the reason that was given most often.
std::string Reason(const std::vector<sim::ClusterResult>& results) {
  std::map<std::string, uint64_t> all;
  for (const auto& r : results) {
    for (const auto& [why, times] : r.refused) all[why] += times;
  }
  std::string most = "-";
  uint64_t times = 0;
  for (const auto& [why, n] : all) {
    if (n > times) most = why;
    times = std::max(times, n);
  }
  return most;
}

Table TableOf(const std::string& title, const OverloadRuns& runs,
              double scale) {
  Table table{title,
              {"system", "TTFT p50 ms", "p99 ms", "TPOT p50 ms", "p99 ms",
               "SLO missed %", "bubbles %", "preemptions", "drops",
               "GB at most", "time dropped %", "not dropped since"},
              {}};
  for (size_t i = 0; i < runs.of.size(); ++i) {
    const auto by = [&](auto get) { return runs.By(i, get); };
    using R = sim::ClusterResult;
    const auto mean = [&](auto get) {
      return absl::StrFormat("%.1f", MeanOf(by(get)).mean);
    };
    table.rows.push_back(
        {runs.names[i],
         InMilliseconds(by([](const R& r) { return Ttft(r, .5); })),
         InMilliseconds(by([](const R& r) { return Ttft(r, .99); })),
         InMilliseconds(by([](const R& r) { return Tpot(r, .5); })),
         InMilliseconds(by([](const R& r) { return Tpot(r, .99); })),
         Text(MeanOf(Violations(runs, i, scale))),
         mean([](const R& r) { return 100 * r.bubbles; }),
         mean([](const R& r) { return 1. * r.preemptions; }),
         mean([](const R& r) { return 1. * r.drops; }),
         mean([](const R& r) { return r.most_dropped_bytes / 1e9; }),
         mean([](const R& r) { return 100 * r.dropped_share; }),
         Reason(runs.of[i])});
  }
  return table;
}

// Makes a table of ours with each link and re-read factor, over KunServe and
// over vLLM, that shows which of the three has the shortest tail.
Table WhoWins(const std::string& title, const OverloadRuns& runs) {
  Table table{title,
              {"ours by", "p99 TTFT, KunServe over ours", "vLLM over ours",
               "p99 TPOT, KunServe over ours", "vLLM over ours",
               "shortest TTFT", "shortest TPOT"},
              {}};
  using Get = double (*)(const sim::ClusterResult&);
  const Get gets[] = {[](const sim::ClusterResult& r) { return Ttft(r, .99); },
                      [](const sim::ClusterResult& r) { return Tpot(r, .99); }};
  for (size_t i = kOursNvlink; i + 1 < runs.of.size(); ++i) {
    std::vector<std::string> row = {runs.names[i]}, shortest;
    for (const Get get : gets) {
      const Interval kunserve =
          RatioOf(runs.By(kKunServe, get), runs.By(i, get));
      const Interval vllm = RatioOf(runs.By(0, get), runs.By(i, get));
      row.push_back(Text(kunserve));
      row.push_back(Text(vllm));
      const double most = std::min(kunserve.mean, vllm.mean);
      shortest.push_back(most >= 1                    ? "ours"
                         : kunserve.mean <= vllm.mean ? "KunServe"
                                                      : "vLLM (DP)");
    }
    row.insert(row.end(), shortest.begin(), shortest.end());
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Compares the P99 TTFT of a baseline with that of a system, and makes the
// other comparisons.
void CompareOverload(const Case& c, const OverloadRuns& runs, size_t system,
                     double scale, Figure* f) {
  using R = sim::ClusterResult;
  // The longer outputs are our setting, so they do not count.
  const bool counts = system == kKunServe && c.load != Load::kReasoning;
  const std::string name = runs.names[system];
  const auto p99 = [](const R& r) { return Ttft(r, .99); };
  const auto add = [&](const std::string& what, Sense sense, double paper,
                       double even, Interval ours) {
    Comparison x;
    x.what = absl::StrCat(NameOf(c), ": ", what);
    x.sense = sense;
    x.paper = paper;
    x.even = even;
    x.ours = ours;
    x.counts = counts;
    f->comparisons.push_back(x);
  };
  for (size_t b = 0; b < kBaselines; ++b) {
    add(absl::StrCat("p99 TTFT, ", runs.names[b], " over ", name), Sense::kGain,
        c.large ? kLeastGain72 : kLeastGain, 1,
        RatioOf(runs.By(b, p99), runs.By(system, p99)));
  }
  const auto p50 = [](const R& r) { return Tpot(r, .5); };
  add(absl::StrCat("p50 TPOT, ", name, " over vLLM (DP)"), Sense::kAbout,
      kMostTpot, 1, RatioOf(runs.By(system, p50), runs.By(0, p50)));
  add(absl::StrCat("points of SLO violations, vLLM (DP) less ", name),
      Sense::kGain, kViolations, 0,
      DifferenceOf(Violations(runs, 0, scale),
                   Violations(runs, system, scale)));
  if (system == kKunServe) {
    add("p99 TTFT, vLLM (DP) over the same with KV without end", Sense::kGain,
        1, 0, RatioOf(runs.By(0, p99), runs.By(runs.of.size() - 1, p99)));
    f->comparisons.back().counts = false;
    return;
  }
  for (const auto& [what, get] :
       {std::pair<const char*, double (*)(const R&)>{"p99 TTFT", p99},
        {"p99 TPOT", [](const R& r) { return Tpot(r, .99); }}}) {
    add(absl::StrCat(what, ", KunServe over ", name), Sense::kGain, 1, 0,
        RatioOf(runs.By(kKunServe, get), runs.By(system, get)));
  }
}

// Plots the mean TTFT of the requests that came in each window of the first
// seed.
Panel OverTime(const Case& c, const OverloadRuns& runs, double seconds) {
  Panel panel{
      absl::StrCat(NameOf(c), ": mean TTFT over time"), "s", "s", {}, {}, {}};
  for (double t = 0; t < seconds; t += kWindow) panel.x.push_back(t);
  for (size_t i = 0; i <= kOursNvlink; ++i) {
    Curve curve{runs.names[i], {}};
    for (const double t : panel.x) {
      Values of_seed;
      for (const auto& r : runs.of[i]) {
        double sum = 0, n = 0;
        for (const workload::Outcome& o : r.outcomes) {
          if (o.begin_s < t || o.begin_s >= t + kWindow) continue;
          sum += o.ttft_s();
          ++n;
        }
        of_seed.push_back(n > 0 ? sum / n : 0);
      }
      curve.y.push_back(MeanOf(of_seed));
    }
    panel.curves.push_back(std::move(curve));
  }
  return panel;
}

}  // namespace

Figure KunServeFigure12(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "kunserve12";
  f.title = "KunServe, Figure 12: a burst over time, and throughput";
  f.question =
      "Does TTFT stay flat while a burst asks for more KV than there is?";
  for (const Case& c : kCases) {
    if (effort.quick && !IsQuick(c)) continue;
    const OverloadRuns runs =
        RunAll(SettingOf(c), OverloadSystems(), data, effort);
    f.panels.push_back(OverTime(c, runs, SettingOf(c).seconds));
    const auto worst = [](const sim::ClusterResult& r) {
      return Ttft(r, .999);
    };
    for (const size_t system : {kKunServe, kOursNvlink}) {
      Comparison x;
      x.what = absl::StrCat(NameOf(c), ": worst TTFT (p99.9), vLLM (DP) over ",
                            runs.names[system]);
      x.paper = c.large ? kLeastGain72 : kLeastGain;
      x.ours = RatioOf(runs.By(0, worst), runs.By(system, worst));
      x.counts = system == kKunServe && c.load != Load::kReasoning;
      f.comparisons.push_back(x);
    }
  }
  f.provenance = KunServeProvenance();
  f.because = "see Figure 13";
  return f;
}

Figure KunServeFigure13(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "kunserve13";
  f.title = "KunServe, Figure 13: latencies and SLO violations";
  f.question =
      "By how much are tails shorter if weights become KV, and what does it "
      "cost?";
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  if (!effort.quick) {
    cases.push_back({false, Load::kAzureCode});
    cases.push_back({false, Load::kServeGen});
  }
  for (const Case& c : cases) {
    if (effort.quick && !IsQuick(c)) continue;
    const bool chat = c.load == Load::kBurstGpt || c.load == Load::kShareGpt;
    const double scale = chat ? 5 : 10;
    const OverloadRuns runs = RunAll(SettingOf(c), SystemsOf(c), data, effort);
    f.tables.push_back(
        TableOf(absl::StrCat(NameOf(c), ", SLO ", scale, " times the best P50"),
                runs, scale));
    f.tables.push_back(WhoWins(absl::StrCat(NameOf(c), ", who wins"), runs));
    const bool of_paper =
        c.load != Load::kAzureCode && c.load != Load::kServeGen;
    if (!of_paper) continue;
    CompareOverload(c, runs, kKunServe, scale, &f);
    CompareOverload(c, runs, kOursNvlink, scale, &f);
  }
  f.provenance = KunServeProvenance();
  f.provenance.push_back(absl::StrFormat(
      "the paper's factors are %.1f to %.1f over workloads and baselines (72B: "
      "8.4 to 11.9); the least is compared",
      kLeastGain, kMostGain));
  f.because =
      "KV binds, but vLLM that never runs out of it has a tail that is only so "
      "much shorter (the last table row): no system can win more. On 72B "
      "prefill binds as well";
  return f;
}

}  // namespace fineserve::bench
