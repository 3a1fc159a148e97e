// KunServe, Figures 14, 16 and 17: ablation, restoration, and a burst that does
// not end.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/figures.h"
#include "bench/paper/kunserve/kunserve_scene.h"

namespace fineserve::bench {
namespace {

using Load = KunServeSetting::Load;
using Result = sim::ClusterResult;

OverloadSystem Named(OverloadSystem system, const char* name) {
  system.name = name;
  return system;
}

// Keeps only the requests that come in bursts.
Result Bursts(Result result) {
  std::erase_if(result.outcomes,
                [](const workload::Outcome& o) { return !InBurst(o.begin_s); });
  return result;
}

Values Of(const OverloadRuns& runs, size_t system, bool tpot, double quantile) {
  return runs.By(system, [&](const Result& r) {
    return tpot ? Tpot(r, quantile) : Ttft(r, quantile);
  });
}

void Add(Figure* f, const std::string& what, Sense sense, double paper,
         double even, const Interval& ours, bool counts = true) {
  Comparison c;
  c.what = what;
  c.sense = sense;
  c.paper = paper;
  c.even = even;
  c.ours = ours;
  c.counts = counts;
  f->comparisons.push_back(std::move(c));
}

Table Quantiles(const std::string& title, const OverloadRuns& runs) {
  constexpr double kQuantiles[] = {.5, .9, .99, .999};
  Table table{title, {"system"}, {}};
  for (const char* metric : {"TTFT", "TPOT"}) {
    for (const double q : kQuantiles) {
      table.header.push_back(absl::StrFormat("%s p%g ms", metric, 100 * q));
    }
  }
  for (const char* more : {"bubbles %", "drops", "restorations"}) {
    table.header.push_back(more);
  }
  for (size_t i = 0; i < runs.of.size(); ++i) {
    std::vector<std::string> row = {runs.names[i]};
    for (const bool tpot : {false, true}) {
      for (const double q : kQuantiles) {
        row.push_back(InMilliseconds(Of(runs, i, tpot, q)));
      }
    }
    const auto mean = [&](auto get) {
      return absl::StrFormat("%.1f", MeanOf(runs.By(i, get)).mean);
    };
    row.push_back(mean([](const Result& r) { return 100 * r.bubbles; }));
    row.push_back(mean([](const Result& r) { return 1. * r.drops; }));
    row.push_back(mean([](const Result& r) { return 1. * r.restores; }));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Plots a series of the first seed, one point for every ten seconds.
Panel Over(const std::string& title, const OverloadRuns& runs,
           std::vector<double> Result::*series, double factor) {
  constexpr size_t kEach = 10;
  Panel panel{title, "s", "", {}, {}, {}};
  size_t most = 0;
  for (const auto& of : runs.of) {
    most = std::max(most, (of[0].*series).size());
  }
  for (size_t t = 0; t < most; t += kEach) {
    panel.x.push_back(static_cast<double>(t));
  }
  for (size_t i = 0; i < runs.of.size(); ++i) {
    const std::vector<double>& all = runs.of[i][0].*series;
    Curve curve{runs.names[i], {}};
    for (size_t t = 0; t < most; t += kEach) {
      curve.y.push_back({t < all.size() ? factor * all[t] : 0, 0});
    }
    panel.curves.push_back(std::move(curve));
  }
  return panel;
}

}  // namespace

Figure KunServeFigure14(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "kunserve14";
  f.title = "KunServe, Figure 14: each technique alone";
  f.question = "By how much does each technique shorten tails in a burst?";
  KunServeSetting setting;
  setting.load = Load::kArxiv;
  const std::vector<OverloadSystem> all = OverloadSystems();
  OverloadSystem dropping = Named(all[kKunServe], "+ dynamic drop");
  dropping.coordinated = dropping.lookahead = false;
  OverloadSystem coordinated = Named(dropping, "+ coordinated exchange");
  coordinated.coordinated = true;
  OverloadSystem half = Named(all[kOursNvlink], "ours, restores at half");
  half.restore = .5;
  OverloadRuns runs = RunAll(
      setting,
      {all[0], dropping, coordinated,
       Named(all[kKunServe], "+ lookahead (KunServe)"), half, all[kOursNvlink]},
      data, effort);
  for (auto& of : runs.of) {
    for (Result& r : of) r = Bursts(std::move(r));
  }
  f.tables.push_back(Quantiles("14B, LongBench, requests in bursts", runs));
  enum { kVllm, kDropping, kCoordinated, kLookahead, kHalf, kOurs };
  const auto gain = [&](const char* what, size_t from, size_t to, bool tpot,
                        double quantile, double paper, bool counts = true) {
    Add(&f,
        absl::StrFormat("%s: p%g %s", what, 100 * quantile,
                        tpot ? "TPOT" : "TTFT"),
        Sense::kGain, paper, 1,
        RatioOf(Of(runs, from, tpot, quantile), Of(runs, to, tpot, quantile)),
        counts);
  };
  gain("dynamic drop over vLLM (DP)", kVllm, kDropping, false, .9, 8.8);
  gain("dynamic drop over vLLM (DP)", kVllm, kDropping, false, .99, 11.7);
  gain("dynamic drop over vLLM (DP)", kVllm, kDropping, false, .999, 10.3);
  gain("coordinated exchange", kDropping, kCoordinated, false, .99, 1.5);
  gain("coordinated exchange", kDropping, kCoordinated, false, .999, 1.4);
  gain("lookahead", kCoordinated, kLookahead, true, .9, 1 / .955);
  gain("lookahead", kCoordinated, kLookahead, true, .99, 1 / .894);
  gain("lookahead", kCoordinated, kLookahead, true, .999, 1 / .903);
  const auto bubbles = [](const Result& r) { return 100 * r.bubbles; };
  Add(&f, "bubbles without lookahead, %", Sense::kAbout, 21.9, 0,
      MeanOf(runs.By(kCoordinated, bubbles)));
  Add(&f, "bubbles with lookahead, %", Sense::kAbout, 8.3, 0,
      MeanOf(runs.By(kLookahead, bubbles)));
  gain("ours over vLLM (DP)", kVllm, kOurs, false, .99, 11.7, false);
  gain("ours over KunServe", kLookahead, kOurs, false, .99, 1, false);
  gain("ours over KunServe", kLookahead, kOurs, true, .99, 1, false);
  gain("ours, restoring at 85 % over at half", kHalf, kOurs, true, .5, 1,
       false);
  f.provenance = KunServeProvenance();
  f.because =
      "vLLM's queue is shorter here than the paper's, see Figure 13; lookahead "
      "takes less from bubbles than printed";
  return f;
}

Figure KunServeFigure16(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "kunserve16";
  f.title = "KunServe, Figure 16: restoration between two bursts";
  f.question = "How much does it win to take weights back after a burst?";
  const std::vector<OverloadSystem> all = OverloadSystems();
  OverloadSystem stays = Named(all[kKunServe], "KunServe, never restores");
  OverloadSystem ours_stays = Named(all[kOursNvlink], "ours, never restores");
  stays.restores = ours_stays.restores = false;
  const OverloadRuns runs =
      RunAll(KunServeSetting(),
             {all[0], stays, all[kKunServe], ours_stays, all[kOursNvlink]},
             data, effort);
  enum { kVllm, kStays, kRestores, kOursStays, kOurs };
  f.tables.push_back(Quantiles("14B, BurstGPT (fitted)", runs));
  f.panels.push_back(Over("weights dropped over time, GB (first seed)", runs,
                          &Result::dropped, 1e-9));
  f.panels.push_back(
      Over("KV in use over what there is without drops (first seed)", runs,
           &Result::used, 1));
  const struct {
    bool tpot;
    double quantile, paper;
  } printed[] = {{false, .5, 1 / .72},
                 {true, .5, 1 / .77},
                 {false, .99, 6.4},
                 {true, .99, 1.2}};
  for (const auto& p : printed) {
    const std::string metric =
        absl::StrFormat("p%g %s", 100 * p.quantile, p.tpot ? "TPOT" : "TTFT");
    const auto ratio = [&](size_t from, size_t to) {
      return RatioOf(Of(runs, from, p.tpot, p.quantile),
                     Of(runs, to, p.tpot, p.quantile));
    };
    Add(&f, absl::StrCat("KunServe, without over with restoration: ", metric),
        Sense::kGain, p.paper, 1, ratio(kStays, kRestores));
    Add(&f, absl::StrCat("ours, without over with restoration: ", metric),
        Sense::kGain, p.paper, 1, ratio(kOursStays, kOurs), false);
    Add(&f, absl::StrCat("KunServe over ours: ", metric), Sense::kGain, 1, 0,
        ratio(kRestores, kOurs), false);
  }
  f.provenance = KunServeProvenance();
  f.provenance.push_back(
      "KunServe moves KV within a GPU before weights come back to where it "
      "was; ours takes whichever slabs are free (note 0048)");
  f.because =
      "bursts are fitted; without restoration the second one begins in groups "
      "that already have the memory for it";
  return f;
}

Figure KunServeFigure17(const Data& data, const Effort& effort) {
  Figure f;
  f.id = "kunserve17";
  f.title = "KunServe, Figure 17: a burst without end";
  f.question = "How long does KV last in a burst that does not end?";
  KunServeSetting setting;
  setting.large = true;
  setting.endless = true;
  setting.seconds = 200;
  const std::vector<OverloadSystem> all = OverloadSystems();
  const OverloadRuns runs =
      RunAll(setting, {all[0], all[kKunServe], all[kOursNvlink]}, data, effort);
  const auto lasts = [&](const Result& r) {
    return KvLastsSeconds(r, setting.seconds);
  };
  const double kv = [&] {
    const sim::ClusterSetup s = SetupOf(setting, all[0]);
    return static_cast<double>(s.kv_bytes * s.replicas);
  }();
  const auto freed = [&](const Result& r) {
    return 100 * static_cast<double>(r.most_dropped_bytes) / kv;
  };
  // Returns the longest TTFT over the median TTFT before the burst.
  const auto worst = [](const Result& r) {
    std::vector<double> before;
    for (const workload::Outcome& o : r.outcomes) {
      if (o.begin_s < kBurstAt) before.push_back(o.ttft_s());
    }
    return Ttft(r, 1) / workload::Quantile(before, .5);
  };
  Table table{"72B, BurstGPT (fitted), the burst of 45 s goes on",
              {"system", "KV lasts for s", "KV freed %", "drops",
               "longest TTFT over the median before", "TPOT p99 ms"},
              {}};
  for (size_t i = 0; i < runs.of.size(); ++i) {
    table.rows.push_back(
        {runs.names[i], Text(MeanOf(runs.By(i, lasts))),
         Text(MeanOf(runs.By(i, freed))),
         Text(MeanOf(runs.By(i, [](const Result& r) { return 1. * r.drops; }))),
         Text(MeanOf(runs.By(i, worst))),
         InMilliseconds(Of(runs, i, true, .99))});
  }
  f.tables.push_back(std::move(table));
  f.panels.push_back(
      Over("KV in use and queued for over what there is (first seed)", runs,
           &Result::asked, 1));
  enum { kVllm, kKun, kOurs };
  Add(&f, "time until KV is exhausted, KunServe over vLLM (DP)", Sense::kGain,
      1.5, 1, RatioOf(runs.By(kKun, lasts), runs.By(kVllm, lasts)));
  Add(&f, "KV that KunServe frees, %", Sense::kAbout, 57, 0,
      MeanOf(runs.By(kKun, freed)));
  Add(&f, "longest TTFT over the median, vLLM (DP)", Sense::kGain, 42, 1,
      MeanOf(runs.By(kVllm, worst)));
  Add(&f, "time until KV is exhausted, ours over vLLM (DP)", Sense::kGain, 1.5,
      1, RatioOf(runs.By(kOurs, lasts), runs.By(kVllm, lasts)), false);
  Add(&f, "time until KV is exhausted, ours over KunServe", Sense::kGain, 1, 0,
      RatioOf(runs.By(kOurs, lasts), runs.By(kKun, lasts)), false);
  f.provenance = KunServeProvenance();
  f.provenance.push_back(
      "KV is exhausted from the second on in which what runs and waits asks "
      "for over 105 % of what there is until arrivals end, at 200 s");
  f.because =
      "KunServe merges all four instances here where the paper's stops at two "
      "drops; a pair of ours frees half a copy each at most, and its steps "
      "become longer";
  return f;
}

}  // namespace fineserve::bench
