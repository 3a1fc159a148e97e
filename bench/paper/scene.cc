#include "bench/paper/scene.h"

namespace fineserve::bench {

const std::vector<SlowdownSource>& Slowdowns() {
  // Means of the authors' profile with fewer SMs (MPS 50, 40 and 20 %) over the
  // same with all, TP 1, 48 points each; a third and a quarter of the SMs lie
  // on the line between 40 and 20 %. A co-tenant's share is taken to leave half
  // the SMs, a third, a quarter. A request: its prefill and 327 steps.
  static const auto* all = new std::vector<SlowdownSource>{
      {"MPS, requests",
       "the authors' profile: whole requests with 1/2, 1/3, 1/4 of the SMs "
       "(MPS) over all of them",
       {{1, 1.13, 1.40, 1.62}}},
      {"MPS, prefill",
       "the authors' profile: prefill alone with 1/2, 1/3, 1/4 of the SMs",
       {{1, 1.60, 2.54, 3.24}}},
      {"Fig. 6",
       "FineServe section 3.3: FP8 with FP8 has 1.95 times the throughput of "
       "one; each more is taken for as much",
       {{1, 1.026, 1.051}}},
      {"time slices", "n engines take n times as long each", {}},
  };
  return *all;
}

}  // namespace fineserve::bench
