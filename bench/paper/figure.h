#ifndef BENCH_PAPER_FIGURE_H_
#define BENCH_PAPER_FIGURE_H_

#include <string>
#include <vector>

#include "bench/paper/interval.h"
#include "bench/paper/verdict.h"

namespace fineserve::bench {

// One system's values along the x axis of a panel.
struct Curve {
  std::string name;
  std::vector<Interval> y;
};

// One plot: curves over numbers, or bars over names.
struct Panel {
  std::string title, x_label, y_label;
  std::vector<double> x;
  std::vector<std::string> groups;  // in place of x
  std::vector<Curve> curves;
};

// A number that the paper prints, and ours beside it.
struct Comparison {
  std::string what;  // "attainment, FineServe over Prism*, released tier"
  Sense sense = Sense::kGain;
  double paper = 0;
  double even = 1;  // no gain
  Interval ours;
  // The figure's verdict is that of its own systems. Ours, and a second
  // setting, are reported beside it.
  bool counts = true;

  Verdict verdict() const { return Judge(sense, paper, even, ours); }
};

// A table of text: a header and rows.
struct Table {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// A figure of a paper, simulated.
struct Figure {
  std::string id;     // "fs10"
  std::string title;  // "FineServe, Figure 10: …"
  std::string question;
  std::vector<Panel> panels;
  std::vector<Table> tables;
  std::vector<Comparison> comparisons;
  // Origin of the data, and the parts of the setting that we chose.
  std::vector<std::string> provenance;
  // Why something is not reproduced; printed only then.
  std::string because;

  // The worst of the comparisons that count.
  Verdict verdict() const {
    Verdict worst = Verdict::kReproduced;
    for (const Comparison& c : comparisons) {
      if (c.counts) worst = Worse(worst, c.verdict());
    }
    return worst;
  }
};

// A figure that is not here.
struct NotShown {
  std::string title, reason;
};

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_FIGURE_H_
