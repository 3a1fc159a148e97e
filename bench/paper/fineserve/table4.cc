// FineServe, Table 4: the placement of models.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/paper/compared_systems/serve.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"

namespace fineserve::bench {
namespace {

// Requests/s of all three models together; the paper does not state the rate.
constexpr double kRates[] = {0.75, 1.5, 3, 6};

Placement PlaceAt(const System& system, const Data& data, double rate) {
  FineServeSetting setting;
  setting.models = TableFourModels();
  setting.rate = rate;
  return PlaceBy(system, FineServeScene(data, setting).snapshot);
}

// "C | A B": the models of each GPU.
std::string Places(const Placement& placement) {
  std::map<std::string, std::string> on;
  for (const auto& [model, gpus] : placement.gpus) {
    for (const std::string& gpu : gpus) absl::StrAppend(&on[gpu], model, " ");
  }
  std::vector<std::string> parts;
  for (const auto& [gpu, models] : on) parts.push_back(models);
  return absl::StrJoin(parts, "| ");
}

bool Alone(const Placement& p, const std::string& model) {
  for (const auto& [other, gpus] : p.gpus) {
    if (other != model && gpus == p.gpus.at(model)) return false;
  }
  return true;
}

// True if the placement is Table 4's: FineServe puts C alone, Prism* puts it
// with B.
bool AsPrinted(const Placement& p, bool fineserve) {
  if (p.gpus.size() != TableFourModels().size()) return false;
  if (fineserve) return Alone(p, "C");
  return Alone(p, "A") && p.gpus.at("B") == p.gpus.at("C");
}

}  // namespace

Figure FineServeTable4(const Data& data, const Effort&) {
  Figure f;
  f.id = "fs-table4";
  f.title = "FineServe, Table 4: places of three models on two GPUs";
  f.question =
      "Does each placement put A (8B FP16), B (8B FP8) and C (70B AWQ) where "
      "the paper has them?";
  f.provenance = {
      "models: the authors' profile (apex-cost.csv), sizes computed from their "
      "shapes; lengths: ShareGPT first turns; SLO scale 20",
      "ours: the rates, the same for each model; each number is the share of "
      "four rates (0.25 to 2 requests/s a model) with the printed placement; "
      "at 4 the released F_M of C exceeds a GPU, and it would ask for "
      "replicas"};
  f.because = "some rate gives another placement";
  Table table{"Placements", {"system", "order", "gpu-0 | gpu-1, by rate"}, {}};
  using plan::Tier;
  for (const System& s :
       {FineServeOf(Tier::kPaper), FineServeOf(Tier::kReleased),
        PrismStarOf(Tier::kPaper), PrismStarOf(Tier::kReleased), Ours()}) {
    const bool fineserve = s.placement.rfind("fineserve", 0) == 0;
    std::vector<double> printed;
    std::vector<std::string> row = {s.name, ""};
    for (const double rate : kRates) {
      const Placement p = PlaceAt(s, data, rate);
      printed.push_back(AsPrinted(p, fineserve) ? 1 : 0);
      row[1] = absl::StrJoin(p.order, " ");
      row.push_back(absl::StrCat(rate, "/s: ", Places(p)));
    }
    table.rows.push_back(row);
    Comparison c;
    c.what = absl::StrCat(s.name, ": rates with the printed placement (share)");
    c.sense = Sense::kExact;
    c.paper = 1;
    c.ours = {MeanOf(printed).mean, 0};
    c.counts = s.name != Ours().name;
    f.comparisons.push_back(c);
  }
  f.tables = {table};
  return f;
}

}  // namespace fineserve::bench
