#ifndef BENCH_PAPER_FIGURES_H_
#define BENCH_PAPER_FIGURES_H_

#include <vector>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/figure.h"

namespace fineserve::bench {

// Each figure of its paper.
Figure FineServeFigure3(const Data& data, const Effort& effort);
Figure FineServeFigure4(const Data& data, const Effort& effort);
Figure FineServeFigure10(const Data& data, const Effort& effort);
Figure FineServeFigure11(const Data& data, const Effort& effort);
Figure FineServeFigure12(const Data& data, const Effort& effort);
Figure FineServeTable4(const Data& data, const Effort& effort);
Figure FineServeFigure13(const Data& data, const Effort& effort);
Figure PrismFigure7(const Data& data, const Effort& effort);
Figure PrismFigure8(const Data& data, const Effort& effort);
Figure PrismFigure10(const Data& data, const Effort& effort);
Figure PrismFigure11(const Data& data, const Effort& effort);
Figure PrismFigure12(const Data& data, const Effort& effort);
Figure PrismFigure9(const Data& data, const Effort& effort);
Figure PrismTable1(const Data& data, const Effort& effort);
Figure PrismTraces(const Data& data, const Effort& effort);
Figure KunServeFigure12(const Data& data, const Effort& effort);
Figure KunServeFigure13(const Data& data, const Effort& effort);
Figure KunServeFigure14(const Data& data, const Effort& effort);
Figure KunServeFigure15(const Data& data, const Effort& effort);
Figure KunServeFigure16(const Data& data, const Effort& effort);
Figure KunServeFigure17(const Data& data, const Effort& effort);

// All of them, in order.
struct FigureEntry {
  const char* id;
  Figure (*make)(const Data& data, const Effort& effort);
};
const std::vector<FigureEntry>& AllFigures();

// The figures that are not shown, and why.
const std::vector<NotShown>& FiguresNotShown();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_FIGURES_H_
