#ifndef BENCH_PAPER_PRISM_PRISM_SCENE_H_
#define BENCH_PAPER_PRISM_PRISM_SCENE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/compared_systems/system.h"
#include "bench/paper/figure.h"

namespace fineserve::bench {

// Parameters that Prism's experiments vary.
struct PrismSetting {
  uint32_t models = 8;
  uint32_t gpus = 2;
  double gpu_bytes = 80e9;
  double rate_scale = 1;
  double slo_scale = 8;   // of TTFT
  double tpot_scale = 0;  // 0: no TPOT SLO
  sim::Slowdown slowdown = Slowdowns()[0].slowdown;
  double other_slo_scale = 0;      // of every second model; 0: the same
  uint32_t longest_tokens = 4096;  // of a request
};

// Makes Prism's Arena trace (600 s, 27 models), scaled as Prism scales it: by
// copies of requests in the same second. With fewer than 27 models, each serves
// the requests of several; with more, the further ones repeat requests, half a
// trace later. All have the profile of 8B, FP16 and FP8 in turn, since no
// profile has been published of the smaller models, which are most of Prism's.
// SLOs are TTFT and TPOT on an idle GPU (of the P95 prompt) times the scales.
Scene PrismScene(const Data& data, const PrismSetting& setting);
// Does the same for the models of any trace.
Scene SceneOfTrace(const Data& data, const workload::Trace& trace,
                   const PrismSetting& setting);

// Compares our lead over another system, in points, with the claim that ours is
// not behind by a point or more.
Comparison NotBehind(const std::string& ours, const std::string& theirs,
                     Interval lead);

// Returns our system and Prism, both with idle engines that leave; Prism's
// baselines; and our system and Prism with all engines in place.
std::vector<System> PrismSystems();

// Returns the provenance that all figures of Prism share.
std::vector<std::string> PrismProvenance();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_PRISM_PRISM_SCENE_H_
