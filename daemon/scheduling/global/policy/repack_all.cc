#include "daemon/scheduling/global/policy/repack_all.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "daemon/scheduling/global/policy/repack.h"

namespace fineserve::plan {
namespace {

// One pass over all neighbourhoods.
class Round {
 public:
  Round(const SearchLimits& limits, Assignment* a, uint64_t* tries)
      : limits_(limits), p_(a->problem()), a_(*a), board_(a), tries_(*tries) {}

  // Returns true if it found an improvement.
  bool Run() {
    bool better = false;
    for (uint32_t m = 0; m < p_.models.size() && tries_ > 0; ++m) {
      if (HasSeveral(m)) better |= RepackModel(m);
    }
    const std::vector<uint32_t> lacking =
        Ranked([this](uint32_t g) { return board_.Missing(g); });
    const std::vector<uint32_t> roomy =
        Ranked([this](uint32_t g) { return a_.Room(g, Charge::kLeast); });
    std::set<std::pair<uint32_t, uint32_t>> seen;
    // By the sum of both ranks.
    const size_t gpus = p_.gpus.size();
    for (size_t sum = 0; sum + 1 < 2 * gpus && tries_ > 0; ++sum) {
      const size_t first = sum < gpus ? 0 : sum - gpus + 1;
      for (size_t i = first; i <= sum && i < gpus && tries_ > 0; ++i) {
        const auto pair = std::minmax(lacking[i], roomy[sum - i]);
        if (seen.insert(pair).second) better |= RepackGpus(pair);
      }
    }
    return better;
  }

 private:
  bool HasSeveral(uint32_t model) const {
    return p_.sizings[model].replicas > 1;
  }

  // Packs the model's replicas again, with neighbours whose models have
  // several.
  bool RepackModel(uint32_t model) {
    std::vector<uint32_t> out;
    for (uint32_t r = p_.first_replica[model]; r < p_.first_replica[model + 1];
         ++r) {
      out.push_back(r);
      for (const uint32_t g : a_.GroupOf(r)) {
        for (const uint32_t other : a_.On(g)) {
          if (HasSeveral(p_.replicas[other].model)) out.push_back(other);
        }
      }
    }
    return RepackSome(std::move(out));
  }

  bool RepackGpus(const std::pair<uint32_t, uint32_t>& gpus) {
    std::vector<uint32_t> out(a_.On(gpus.first).begin(),
                              a_.On(gpus.first).end());
    out.insert(out.end(), a_.On(gpus.second).begin(), a_.On(gpus.second).end());
    return RepackSome(std::move(out));
  }

  // Repacks replicas on the GPUs of those in `out`, together with some replicas
  // that have no place.
  bool RepackSome(std::vector<uint32_t> out) {
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    if (out.size() > limits_.most_repacked) return false;
    AddHomeless(&out);
    return Repack(out, GpusOf(out), limits_.repack_width, &board_, &tries_);
  }

  // Adds replicas without a place, up to the limit: first those of models
  // without any place, then further ones of the models in `out`, then the rest.
  void AddHomeless(std::vector<uint32_t>* out) const {
    std::vector<std::pair<int, uint32_t>> homeless;
    std::set<uint32_t> models;
    for (const uint32_t r : *out) models.insert(p_.replicas[r].model);
    for (uint32_t r = 0; r < p_.replicas.size(); ++r) {
      const uint32_t m = p_.replicas[r].model;
      if (a_.Hosted(r) || std::binary_search(out->begin(), out->end(), r)) {
        continue;
      }
      const bool outage =
          a_.HostedReplicas(m) == 0 && p_.replicas[r].number == 0;
      homeless.push_back({outage ? 0 : models.count(m) > 0 ? 1 : 2, r});
    }
    std::sort(homeless.begin(), homeless.end());
    for (const auto& [rank, r] : homeless) {
      if (out->size() >= limits_.most_repacked) return;
      out->push_back(r);
    }
  }

  std::vector<uint32_t> GpusOf(const std::vector<uint32_t>& replicas) const {
    std::set<uint32_t> gpus;
    for (const uint32_t r : replicas) {
      gpus.insert(a_.GroupOf(r).begin(), a_.GroupOf(r).end());
    }
    return {gpus.begin(), gpus.end()};
  }

  // Returns the GPUs with the greatest key first, equal ones by name.
  template <typename Key>
  std::vector<uint32_t> Ranked(Key key) const {
    std::vector<double> keys;
    for (uint32_t g = 0; g < p_.gpus.size(); ++g) keys.push_back(key(g));
    std::vector<uint32_t> ranked(keys.size());
    std::iota(ranked.begin(), ranked.end(), 0u);
    std::stable_sort(
        ranked.begin(), ranked.end(),
        [&keys](uint32_t x, uint32_t y) { return keys[x] > keys[y]; });
    return ranked;
  }

  const SearchLimits& limits_;
  const Problem& p_;
  const Assignment& a_;
  Board board_;
  uint64_t& tries_;
};

}  // namespace

void RepackAll(const SearchLimits& limits, Assignment* a) {
  uint64_t tries = limits.repack_tries;
  while (tries > 0 && Round(limits, a, &tries).Run()) {
    Improve(limits, a);
  }
}

}  // namespace fineserve::plan
