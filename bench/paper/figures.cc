#include "bench/paper/figures.h"

namespace fineserve::bench {

const std::vector<FigureEntry>& AllFigures() {
  static const auto* all = new std::vector<FigureEntry>{
      // In the order of the papers.
      {"fs3", FineServeFigure3},        {"fs4", FineServeFigure4},
      {"fs10", FineServeFigure10},      {"fs11", FineServeFigure11},
      {"fs12", FineServeFigure12},      {"fs-table4", FineServeTable4},
      {"fs13", FineServeFigure13},      {"prism7", PrismFigure7},
      {"prism8", PrismFigure8},         {"prism10", PrismFigure10},
      {"prism11", PrismFigure11},       {"prism12", PrismFigure12},
      {"prism9", PrismFigure9},         {"prism-table1", PrismTable1},
      {"prism-traces", PrismTraces},    {"kunserve12", KunServeFigure12},
      {"kunserve13", KunServeFigure13}, {"kunserve14", KunServeFigure14},
      {"kunserve15", KunServeFigure15}, {"kunserve16", KunServeFigure16},
      {"kunserve17", KunServeFigure17},
  };
  return *all;
}

const std::vector<NotShown>& FiguresNotShown() {
  static const auto* all = new std::vector<NotShown>{
      {"FineServe 1, 5, 7, 8; Prism 5, 6", "drawings of a design"},
      {"FineServe 2",
       "a roofline of the device's data sheet; nothing is served"},
      {"FineServe 6",
       "throughput of two models under MPS: interference is an input here, so "
       "a simulation would only give back what it was given"},
      {"FineServe 9",
       "cost of CUDA driver calls against none: needs a GPU (scripts/bench "
       "mapping and vllm measure it there)"},
      {"Prism 1, 2", "statistics of traces that are not public but for Arena"},
      {"Prism 3, 4",
       "motivation on a trace that is not public (Hyperbolic); FineServe 3 and "
       "4, and Prism 8, ask the same"},
      {"Prism 7 and 12, TPOT rows and the Hyperbolic trace",
       "the trace is not public; the simulator's steps have one slowdown for "
       "all, which is not good enough for TPOT at a scale of 2 to 3"},
      {"Prism 11b", "one run over time; the attainment is in 11"},
      {"Prism's migrations",
       "an engine that leaves its GPU comes back to it: the simulator keeps a "
       "placement for a run"},
      {"Models that span GPUs (70B FP16 and FP8, Qwen3 32B)",
       "the simulator keeps an engine's KV on one GPU"},
  };
  return *all;
}

}  // namespace fineserve::bench
