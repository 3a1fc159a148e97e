#include "bench/paper/compared_systems/system.h"

#include "absl/strings/str_cat.h"

namespace fineserve::bench {
namespace {

using plan::Tier;

// Time in which an engine of 8B starts again: half of the measured 59 s (vLLM
// with a warm compile cache, until the first answer, facts of November 2026),
// in favour of the baseline.
constexpr double kStartSeconds = 30;

const char* TextOf(Parts parts) {
  switch (parts) {
    case Parts::kPool:
      return "one KV pool a GPU, our share policy";
    case Parts::kFootprint:
      return "fixed KV parts by F_M";
    case Parts::kEqual:
      return "equal fixed KV parts";
    case Parts::kLayers:
      return "KV is what 1.8 times the weights leave; models of equal depth "
             "share a pool, its part by rate x layers";
  }
  return "";
}

const char* TextOf(Local local) {
  switch (local) {
    case Local::kFineServe:
      return "our local scheduler (Algorithm 2, kappa, floor of 10 %)";
    case Local::kAlgorithm2:
      return "Algorithm 2 with our predictor and kappa, no floor";
    case Local::kMooreHodgson:
      return "Prism's Algorithm 2 (Moore-Hodgson), one queue a GPU";
    case Local::kFcfs:
      return "first come, first served, nothing dropped";
    case Local::kReleasedAlgorithm2:
      return "the released Algorithm 2: TTFT by tokens alone, at most 3 in "
             "prefill, KV not asked";
    case Local::kReleasedPrism:
      return "the released Prism*: the longest of all leaves until each first "
             "token in turn is on time, at most 3 in prefill, KV not asked";
    case Local::kReleasedFcfs:
      return "the released FCFS: at most 3 in prefill, nothing dropped, KV not "
             "asked";
  }
  return "";
}

std::string TextOf(const Eviction& eviction) {
  if (eviction.is_clairvoyant) {
    return "; the idle engine leaves whose next request is the last, engines "
           "come back ahead of theirs";
  }
  const std::string back =
      eviction.back_s > 0 ? absl::StrCat(eviction.back_s, " s") : "the link";
  switch (eviction.policy) {
    case evict::EvictionPolicy::kSlack:
      return absl::StrCat("; idle engines leave, slack first, back by ", back);
    case evict::EvictionPolicy::kLru:
      return absl::StrCat(eviction.takes_turns
                              ? "; one engine at a time on a GPU, back in "
                              : "; the longest idle leaves, back by ",
                          back);
    case evict::EvictionPolicy::kPrism:
      return absl::StrCat(
          "; engines leave after 45 s, larger SLO first, back by ", back);
  }
  return "";
}

bool Released(Tier tier) { return tier == Tier::kReleased; }

System Evicting(const char* name, System system, const Eviction& eviction) {
  system.name = name;
  system.eviction = eviction;
  return system;
}

}  // namespace

std::string WithTier(const std::string& name, Tier tier) {
  return absl::StrCat(name, " (", plan::TierName(tier), ")");
}

std::string System::Description() const {
  return absl::StrCat(
      "placement ", placement, " (F_M: ", plan::TierName(footprint), "); ",
      TextOf(parts), "; ", TextOf(local),
      slo_batch ? "; batch up to the profile's at the SLO" : "",
      eviction ? TextOf(*eviction) : "; all engines stay",
      "; without a free block the last sequence started is recomputed");
}

System Ours() { return {"ours", "fineserve-opt"}; }

System OursEvicting() {
  System system = Ours();
  system.name = "ours, evicting";
  system.eviction = Eviction();
  return system;
}

System FineServeOf(Tier tier) {
  if (Released(tier)) {
    return {WithTier("FineServe", tier), "fineserve", tier, Parts::kLayers,
            Local::kReleasedAlgorithm2,  true};
  }
  return {WithTier("FineServe", tier), "fineserve", tier, Parts::kPool,
          Local::kAlgorithm2};
}

System PrismStarOf(Tier tier) {
  if (Released(tier)) {
    return {WithTier("Prism*", tier), "prism-mended",        tier,
            Parts::kLayers,           Local::kReleasedPrism, true};
  }
  return {WithTier("Prism*", tier), "prism", tier, Parts::kPool,
          Local::kMooreHodgson};
}

System StaticStarOf(Tier tier) {
  if (Released(tier)) {
    return {WithTier("Static*", tier), "static", tier, Parts::kFootprint,
            Local::kReleasedFcfs,      true};
  }
  return {WithTier("Static*", tier), "static", tier, Parts::kFootprint,
          Local::kFcfs};
}

System Partitioned() {
  return {"S-Partition", "s-partition", Tier::kPaper, Parts::kEqual,
          Local::kFcfs};
}

System MuxServePlus() {
  return {"MuxServe++", "muxserve", Tier::kPaper, Parts::kPool, Local::kFcfs};
}

System Prism() {
  return {"Prism", "prism-mended", Tier::kPaper, Parts::kPool,
          Local::kMooreHodgson};
}

System PrismEvicting() {
  return Evicting("Prism, evicting", Prism(), {evict::EvictionPolicy::kPrism});
}

System Qlm() {
  const System fixed = {"QLM", "qlm", Tier::kPaper, Parts::kPool, Local::kFcfs};
  return Evicting("QLM", fixed,
                  {evict::EvictionPolicy::kLru, kStartSeconds, 0,
                   /*takes_turns=*/true});
}

System LongestIdleLeaves() {
  return Evicting("lru", Ours(), {evict::EvictionPolicy::kLru});
}

System Clairvoyant() {
  Eviction eviction;
  eviction.is_clairvoyant = true;
  return Evicting("clairvoyant", Ours(), eviction);
}

}  // namespace fineserve::bench
