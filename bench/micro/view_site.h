#ifndef BENCH_MICRO_VIEW_SITE_H_
#define BENCH_MICRO_VIEW_SITE_H_

#include <string>
#include <vector>

#include "bench/micro/figure_lines.h"
#include "bench/micro/gpu_site.h"

namespace fineserve::bench {

// Real engines under the preload, each a process.
class ViewSite : public GpuSite {
 public:
  // Runs engines (view_engine.cc) at the same time, each with its flags, and
  // returns what they printed once all have succeeded.
  std::vector<FigureLines> RunEngines(
      const std::vector<std::vector<std::string>>& flags) {
    return RunPrograms("bench_view_engine", flags);
  }
  // The same with another program of ours.
  std::vector<FigureLines> RunPrograms(
      const std::string& program,
      const std::vector<std::vector<std::string>>& flags);
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_VIEW_SITE_H_
