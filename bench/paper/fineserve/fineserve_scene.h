#ifndef BENCH_PAPER_FINESERVE_FINESERVE_SCENE_H_
#define BENCH_PAPER_FINESERVE_FINESERVE_SCENE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/compared_systems/system.h"

namespace fineserve::bench {

// A model of FineServe's Table 3.
struct Variant {
  std::string name, architecture, quantisation;
};
// A: 8B FP16, B: 8B FP8, C: 70B AWQ.
const std::vector<Variant>& TableFourModels();
// All models of Table 3 that the authors profiled on one GPU: those, 8B AWQ, 8B
// QoQ.
const std::vector<Variant>& OneGpuModels();

// The rate scale for which the paper states its results.
inline constexpr double kTopScale = 8;

// Parameters that FineServe's experiments vary.
struct FineServeSetting {
  std::vector<Variant> models = OneGpuModels();
  uint32_t gpus = 2;
  double rate = 1;  // requests/s to all models together, the same to each
  double slo_scale = 20;
  double seconds = 120;
  uint32_t replicas = 1;  // of each; 0: as many as F_M asks for
  sim::Slowdown slowdown = Slowdowns()[0].slowdown;
};

// Makes Poisson arrivals of ShareGPT's first turns, with SLOs of slo_scale
// times the prefill of 903 tokens, their P95, as the released code computes it.
Scene FineServeScene(const Data& data, const FineServeSetting& setting);

// Our system, and FineServe, Prism* and Static*, each in both tiers.
std::vector<System> FineServeSystems();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_FINESERVE_FINESERVE_SCENE_H_
