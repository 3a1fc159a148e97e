#include "bench/paper/figures.h"

namespace fineserve::bench {

const std::vector<FigureEntry>& AllFigures() {
  static const auto* all = new std::vector<FigureEntry>{
      {"fs-table4", FineServeTable4},
      {"fs10", FineServeFigure10},
  };
  return *all;
}

const std::vector<NotShown>& FiguresNotShown() {
  static const auto* all = new std::vector<NotShown>{
      {"FineServe 1, 5, 7, 8", "drawings, not measurements"},
  };
  return *all;
}

}  // namespace fineserve::bench
