#ifndef BENCH_PAPER_KUNSERVE_KUNSERVE_SCENE_H_
#define BENCH_PAPER_KUNSERVE_KUNSERVE_SCENE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/paper/compared_systems/scene.h"
#include "bench/paper/sweep.h"
#include "tools/lab/sim/overload/cluster.h"

namespace fineserve::bench {

// One of KunServe's deployments (Tables 1 and 2 of its paper) and loads.
struct KunServeSetting {
  bool large = false;  // Qwen2.5-72B on cluster B; else 14B on cluster A
  enum class Load : uint8_t {
    kBurstGpt,   // a Gamma process fitted to its published statistics
    kShareGpt,   // the same arrivals, ShareGPT's lengths with context
    kArxiv,      // the same arrivals, arXiv's lengths scaled to LongBench's
    kReasoning,  // the same arrivals, lengths of ServeGen's DeepSeek-R1
    kAzureCode,
    kServeGen,
  } load = Load::kBurstGpt;
  double seconds = 640;
  double use = .476;     // of KV on average, as the paper provisions 2.1 times
  bool endless = false;  // the first burst never ends (Figure 17)
};
// When the first burst begins, s.
inline constexpr double kBurstAt = 45;
// True if a request that comes at that time comes in a burst.
bool InBurst(double seconds);
const char* Name(KunServeSetting::Load load);

// A link between replicas of a domain, which only our system is given.
struct Link {
  const char* name;
  double bytes_per_us;
  uint32_t domain;  // replicas
};
const std::vector<Link>& Links();  // NVLink, PCIe

// A system of the figures.
struct OverloadSystem {
  std::string name;
  sim::Overload overload;
  Link link = {"none", 0, 1};
  double reread = 1;
  bool coordinated = true, lookahead = true, restores = true;
  double restore = 0;  // below so much of the KV; 0: where its tier does
  double kv = 1;       // times the KV that there is
};
// vLLM (DP), vLLM (PP), InferCept, Llumnix, KunServe, ours by NVLink.
std::vector<OverloadSystem> OverloadSystems();
inline constexpr size_t kBaselines = 4, kKunServe = 4, kOursNvlink = 5;
// vLLM (DP) that never runs out of KV: a bound on the gain from more KV.
OverloadSystem Unlimited();

sim::ClusterSetup SetupOf(const KunServeSetting& setting,
                          const OverloadSystem& system);

// Returns one seed's requests, scaled so that vLLM's mean use of KV is `use`.
workload::Trace LoadOf(const KunServeSetting& setting, const Data& data,
                       uint64_t seed);

// All systems on the same requests, by seed. SLOs are five times the P50 of
// vLLM (DP).
struct OverloadRuns {
  std::vector<std::string> names;
  std::vector<std::vector<sim::ClusterResult>> of;  // by system, by seed

  template <typename Get>
  Values By(size_t system, Get get) const {
    Values values;
    for (const sim::ClusterResult& r : of[system]) values.push_back(get(r));
    return values;
  }
};
OverloadRuns RunAll(const KunServeSetting& setting,
                    const std::vector<OverloadSystem>& systems,
                    const Data& data, const Effort& effort);

double Ttft(const sim::ClusterResult& result, double quantile);  // s
double Tpot(const sim::ClusterResult& result, double quantile);  // s

// Formats mean and interval of times in s as ms: "12.3 ± 0.4".
std::string InMilliseconds(const Values& seconds);

// Returns how many seconds a burst that does not end lasts until its KV is
// exhausted for good. Considers the time before `until`, when arrivals end.
double KvLastsSeconds(const sim::ClusterResult& result, double until);

std::vector<std::string> KunServeProvenance();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_KUNSERVE_KUNSERVE_SCENE_H_
