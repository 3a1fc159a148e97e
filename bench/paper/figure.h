#ifndef BENCH_PAPER_FIGURE_H_
#define BENCH_PAPER_FIGURE_H_

#include <string>
#include <vector>

#include "bench/report/interval.h"

namespace fineserve::bench {

// Meaning of a paper's number.
enum class Sense {
  kGain,   // a ratio or a difference over `even`: more is better
  kAbout,  // a value: within a fifth of it
  kExact,  // the same thing, 1 or not, 0
};

enum class Verdict {
  kReproduced,     // as much as the paper has, or more
  kDirectionOnly,  // the same sign, and beyond chance, but less
  kNot,
};
const char* Name(Verdict verdict);

// Judges a gain of `paper`, where `even` means no gain (1 for a ratio, 0 for a
// difference). The direction is seen if our interval is beyond `even`; the gain
// is reproduced if the interval also reaches the paper's number.
Verdict Judge(Sense sense, double paper, double even, const Interval& ours);

// The worse of two.
Verdict Worse(Verdict a, Verdict b);

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

// A number that the paper prints, and our number beside it.
struct Comparison {
  std::string what;  // "attainment, FineServe over Prism*, released tier"
  Sense sense = Sense::kGain;
  double paper = 0;
  double even = 1;  // no gain
  Interval ours;
  // True for the paper's systems, which decide the figure's verdict. Our
  // system, and a second setting, are only reported.
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
  // Why a number is not reproduced; printed only in that case.
  std::string because;

  // Returns the worst verdict of the comparisons that count.
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
