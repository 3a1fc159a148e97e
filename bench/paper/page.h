#ifndef BENCH_PAPER_PAGE_H_
#define BENCH_PAPER_PAGE_H_

#include <string>
#include <vector>

#include "bench/paper/compared_systems/system.h"
#include "bench/paper/figure.h"

namespace fineserve::bench {

// Returns one HTML page that needs no other file: figures with their plots,
// numbers and verdicts, how each system was served, and the figures that are
// not shown.
std::string Page(const std::vector<Figure>& figures,
                 const std::vector<System>& systems,
                 const std::vector<NotShown>& not_shown,
                 const std::string& commit);

// The panel as an SVG.
std::string Draw(const Panel& panel);

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_PAGE_H_
