// The figures of the FineServe, Prism and KunServe papers, simulated: see
// kQuestion.

#include <stdio.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/paper/figures.h"
#include "bench/paper/page.h"
#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(Which figures of the FineServe, Prism and KunServe papers come out here?

Placements by daemon/scheduling/global, served by the production scheduler, pool and share
policy in virtual time (tools/lab/sim), on steps fitted to profiles that were
measured; each baseline as its paper prints it and as the FineServe authors'
repository has it. Each of the paper's numbers gets ours, a 95 % interval over
seeds and a verdict. The page says where data come from and what is chosen
here, how each system is served, and which figures are not shown.)";

void Tell(const Figure& figure, Report* report) {
  for (const Comparison& c : figure.comparisons) {
    report->Figure(absl::StrCat(figure.id, ": ", c.what, ", paper"), c.paper);
    if (c.sense == Sense::kGain || c.sense == Sense::kExact) {
      report->Claim(absl::StrCat(figure.id, ": ", c.what), c.ours.mean, c.paper,
                    bench::Compare::kAtLeast);
    } else {
      report->Figure(absl::StrCat(figure.id, ": ", c.what), c.ours.mean);
    }
  }
  report->Claim(absl::StrCat(figure.id, ": reproduced (2: all, 1: direction)"),
                2 - static_cast<int>(figure.verdict()), 2, Compare::kAtLeast);
}

std::vector<System> AllSystems() {
  using plan::Tier;
  std::vector<System> all = {Ours()};
  for (const Tier tier : {Tier::kPaper, Tier::kReleased}) {
    all.push_back(FineServeOf(tier));
    all.push_back(PrismStarOf(tier));
    all.push_back(StaticStarOf(tier));
  }
  for (System s :
       {Prism(), MuxServePlus(), Partitioned(), OursEvicting(), PrismEvicting(),
        Qlm(), LongestIdleLeaves(), Clairvoyant()}) {
    all.push_back(std::move(s));
  }
  return all;
}

About TheBench() {
  return {
      "paper",
      kQuestion,
      {{"--data", "DIR", "../shared/data", "folder of the measurements"},
       {"--html", "FILE", "build/paper.html", "the page"},
       {"--only", "ID", "all", "one figure: fs10, fs-table4, kunserve13, ..."},
       {"--seeds", "N", "5", "runs of each point, at least 3"},
       {"--seconds", "S", "120", "of arrivals in each run"},
       {"--quick", "0|1", "0", "1: few points and 3 seeds", true}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const Data data = ReadData(arguments.Text("--data"));
  Effort effort;
  effort.quick = arguments.Count("--quick") != 0;
  effort.seeds = effort.quick ? 3
                              : static_cast<uint32_t>(std::max<uint64_t>(
                                    3, arguments.Count("--seeds")));
  effort.seconds = arguments.Number("--seconds");
  Report report("paper");
  std::vector<Figure> figures;
  const std::string& only = arguments.Text("--only");
  for (const FigureEntry& entry : AllFigures()) {
    if (only != "all" && only != entry.id) continue;
    fprintf(stderr, "paper: %s\n", entry.id);
    figures.push_back(entry.make(data, effort));
    Tell(figures.back(), &report);
  }
  if (figures.empty()) Die(absl::StrCat("paper: there is no figure ", only));
  const char* commit = getenv("FINESERVE_COMMIT");
  std::ofstream page(arguments.Text("--html"));
  page << Page(figures, AllSystems(), FiguresNotShown(),
               commit == nullptr ? "unknown" : commit);
  if (!page.flush()) Die("paper: cannot write " + arguments.Text("--html"));
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
