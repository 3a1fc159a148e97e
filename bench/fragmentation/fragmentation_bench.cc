// Measures how much KV a shared pool holds: see kQuestion.

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/fragmentation/lengths.h"
#include "bench/fragmentation/pools.h"
#include "bench/fragmentation/shifting_load.h"
#include "bench/report/report.h"
#include "daemon/pool/geometry/geometry_search.h"
#include "tools/lab/svg/svg_plot.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How many tokens does a shared KV pool hold when the first allocation fails?

Mixes of precisions and depths share one pool (the paper's C1 and C2, Fig. 5):
slabs, compared with an equal partition, one fixed block size, blocks of each
format's own size by first fit, and the released code's split by depth. Requests
of real lengths arrive until one does not fit; then a random half of them leaves
and the mix of models shifts, twelve times. A figure is the mean over the shifts
of the tokens held, divided by those of an ideal pool without blocks or slabs
that got the same requests.

The bench also reports the tokens that a model caches by pool size (Fig. 3),
whose slopes are the marginal memory efficiency.

Finally it replays Fig. 4: 8B FP16 (A) and its FP8 variant (B), ShareGPT
lengths, a load that shifts from one to the other, 25 ms a token, a pool of
16 GiB. Which requests wait for memory with an equal partition, and which with
slabs?)";

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kPoolBytes = 64 * kGiB;
constexpr uint64_t kGranularity = 2 << 20;
constexpr uint32_t kSlabs = 64;  // the least number of slabs in a pool
constexpr int kShifts = 12;
constexpr uint32_t kSeed = 5;

using slab::KvShape;
using slab::Layout;

Model Of(const char* name, uint32_t layers, uint32_t bits, uint64_t quant,
         uint32_t tp = 1) {
  return {name, KvShape{layers, 8, 128, bits, tp, quant, 16, Layout::kLayers}};
}

// The paper's Table 3. QoQ adds an fp16 scale and zero point per token and head
// to both K and V.
const Model kFp16_8B = Of("8B FP16", 32, 16, 0);
const Model kFp8_8B = Of("8B FP8", 32, 8, 0);
const Model kQoq_8B = Of("8B QoQ", 32, 4, 1024);
const Model kFp8_32B = Of("32B FP8", 64, 8, 0);
const Model kFp16_70B = Of("70B FP16 TP4", 80, 16, 0, 4);

struct Mix {
  std::string name;
  std::vector<Model> models;
};

const std::vector<Mix>& Mixes() {
  static const auto* const mixes = new std::vector<Mix>{
      {"8B: FP16+FP8", {kFp16_8B, kFp8_8B}},
      {"8B: FP16+QoQ", {kFp16_8B, kQoq_8B}},
      {"8B: FP16+FP8+QoQ", {kFp16_8B, kFp8_8B, kQoq_8B}},
      {"8B+32B+QoQ", {kFp16_8B, kFp8_32B, kQoq_8B}},
      {"8B+32B+70B", {kFp8_8B, kFp8_32B, kFp16_70B}},
  };
  return *mixes;
}

std::vector<Model> Packed(std::vector<Model> models) {
  for (Model& model : models) model.shape.layout = Layout::kPacked;
  return models;
}

// Returns the cheapest geometry with enough slabs.
slab::PoolGeometry CutFor(const std::vector<Model>& models,
                          uint64_t pool_bytes = kPoolBytes) {
  slab::SearchRequest request{
      pool_bytes, kGranularity, {}, 0, slab::kMaxHandles};
  for (const Model& model : models) request.formats.push_back(model.format());
  auto frontier = *slab::GeometryFrontier(request);
  frontier.erase(std::remove_if(frontier.begin(), frontier.end(),
                                [](const auto& choice) {
                                  return choice.geometry.slab_count < kSlabs;
                                }),
                 frontier.end());
  return Cheapest(frontier).geometry;
}

struct Request {
  size_t model;
  uint32_t tokens;
};

// Generates requests of real lengths for a shifting mix of models.
class Requests {
 public:
  Requests(const std::vector<uint32_t>* lengths, size_t models)
      : lengths_(*lengths), weights_(models, 1) {}

  void Shift() {
    std::uniform_real_distribution<double> weight(0.05, 1);
    for (double& w : weights_) w = weight(random_);
  }
  Request Next() {
    std::discrete_distribution<size_t> model(weights_.begin(), weights_.end());
    return {model(random_), lengths_[random_() % lengths_.size()]};
  }
  std::mt19937_64& random() { return random_; }

 private:
  const std::vector<uint32_t>& lengths_;
  std::vector<double> weights_;
  std::mt19937_64 random_{kSeed};
};

struct Outcome {
  double of_ideal = 0;  // tokens held / tokens of the ideal pool
  double tail = 0;      // of the pool's bytes
  double partial = 0;
};

class Run {
 public:
  Run(const Mix& mix, const std::vector<uint32_t>* lengths, Pool* pool)
      : models_(mix.models),
        requests_(lengths, mix.models.size()),
        pool_(*pool) {}

  Outcome Measure() {
    Outcome mean;
    for (int i = 0; i < kShifts; ++i) {
      Request failed = Fill();
      mean.of_ideal += static_cast<double>(tokens_) / Ideal(failed) / kShifts;
      const Pool::Loss loss = pool_.Lost();
      constexpr auto kPool = static_cast<double>(kPoolBytes);
      mean.tail += static_cast<double>(loss.tail) / kPool / kShifts;
      mean.partial += static_cast<double>(loss.partial) / kPool / kShifts;
      DropHalf();
      requests_.Shift();
    }
    return mean;
  }

 private:
  struct Live {
    Request request;
    Held held;
  };

  uint64_t BytesOf(const Request& r) const {
    return r.tokens * models_[r.model].token_bytes();
  }

  // Returns the request that did not fit.
  Request Fill() {
    while (true) {
      Live live{requests_.Next(), {}};
      if (!pool_.Cache(live.request.model, live.request.tokens, &live.held)) {
        return live.request;
      }
      tokens_ += live.request.tokens;
      bytes_ += BytesOf(live.request);
      live_.push_back(std::move(live));
    }
  }

  // Returns the tokens that a pool without blocks would hold if it went on with
  // the requests from the failed one.
  double Ideal(Request next) const {
    Requests requests = requests_;
    uint64_t tokens = tokens_, bytes = bytes_;
    while (bytes + BytesOf(next) <= kPoolBytes) {
      bytes += BytesOf(next);
      tokens += next.tokens;
      next = requests.Next();
    }
    return static_cast<double>(tokens);
  }

  void DropHalf() {
    std::shuffle(live_.begin(), live_.end(), requests_.random());
    for (size_t n = live_.size() / 2; n > 0; --n) {
      const Live& gone = live_.back();
      tokens_ -= gone.request.tokens;
      bytes_ -= BytesOf(gone.request);
      pool_.Drop(gone.held);
      live_.pop_back();
    }
  }

  const std::vector<Model> models_;
  Requests requests_;
  Pool& pool_;
  std::vector<Live> live_;
  uint64_t tokens_ = 0, bytes_ = 0;
};

struct Scheme {
  const char* name;
  std::function<std::unique_ptr<Pool>(const std::vector<Model>&)> make;
};

const std::vector<Scheme>& Schemes() {
  static const auto* const schemes = new std::vector<Scheme>{
      {"slabs, packed",
       [](const auto& models) {
         return MakeSlabPool(CutFor(Packed(models)), Packed(models));
       }},
      {"slabs, a plane a layer",
       [](const auto& models) { return MakeSlabPool(CutFor(models), models); }},
      {"fixed partition",
       [](const auto& models) {
         return MakePartitionedPool(kPoolBytes, models);
       }},
      {"one block size",
       [](const auto& models) {
         return MakeFixedBlockPool(kPoolBytes, models);
       }},
      {"first fit",
       [](const auto& models) { return MakeFirstFitPool(kPoolBytes, models); }},
      {"split by depth",
       [](const auto& models) {
         return MakeSplitByDepthPool(kPoolBytes, models);
       }},
  };
  return *schemes;
}

std::vector<double> SecondsOf(const std::vector<Series>& series) {
  std::vector<double> seconds(series[0].values.size());
  std::iota(seconds.begin(), seconds.end(), 0);
  return seconds;
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (file.flush()) return true;
  fprintf(stderr, "fragmentation: cannot write %s\n", path.c_str());
  return false;
}

std::vector<Series> MeasureMixes(const std::string& set,
                                 const std::vector<uint32_t>& lengths,
                                 Report* report) {
  std::vector<Series> series;
  for (const Scheme& scheme : Schemes()) {
    series.push_back({scheme.name, {}});
    for (const Mix& mix : Mixes()) {
      const auto pool = scheme.make(mix.models);
      const Outcome outcome = Run(mix, &lengths, pool.get()).Measure();
      series.back().values.push_back(outcome.of_ideal);
      const std::string what =
          absl::StrCat(set, ", ", mix.name, ", ", scheme.name);
      report->Figure(absl::StrCat(what, " (of ideal)"), outcome.of_ideal);
      if (strncmp(scheme.name, "slabs", 5) != 0) continue;
      report->Figure(absl::StrCat(what, ", tail (of pool)"), outcome.tail);
      report->Figure(absl::StrCat(what, ", part use (of pool)"),
                     outcome.partial);
      report->Claim(absl::StrCat(what, " / ideal"), outcome.of_ideal, 0.95,
                    Compare::kAtLeast);
    }
  }
  return series;
}

// Measures the tokens that one model alone caches in pools of `gib` (Fig. 3).
std::vector<Series> MeasureSlopes(const std::vector<double>& gib,
                                  Report* report) {
  std::vector<Series> series;
  for (const Model& model : {kFp16_8B, kFp8_8B, kQoq_8B}) {
    series.push_back({model.name, {}});
    for (const double g : gib) {
      series.back().values.push_back(
          g * static_cast<double>(kGiB) /
          static_cast<double>(model.format().block_bytes()) *
          model.shape.block_tokens / 1000);
    }
    report->Figure(absl::StrCat("slope, ", model.name, " (tokens/MiB)"),
                   1048576.0 / static_cast<double>(model.token_bytes()));
  }
  return series;
}

// Counts the waiting requests in each second, for each scheme and model.
std::vector<Series> MeasureStory(const std::vector<uint32_t>& lengths,
                                 Report* report) {
  constexpr uint64_t kStoryBytes = 16 * kGiB;
  constexpr double kSecondsPerToken = 0.025;
  const std::vector<Model> models = Packed({kFp16_8B, kFp8_8B});
  const std::vector<Phase> phases = {
      {"T1, A some, B much", 120, {2, 14}},
      {"T2, A idle, B much", 120, {0, 14}},
      {"T3, A much, B some", 120, {7, 3}},
  };
  const auto partition = MakePartitionedPool(kStoryBytes, models);
  const auto slabs = MakeSlabPool(CutFor(models, kStoryBytes), models);
  double waiting[2] = {};
  std::vector<Series> series;
  size_t scheme = 0;
  for (auto [name, pool] : {std::pair{"fixed partition", partition.get()},
                            std::pair{"slabs", slabs.get()}}) {
    const Story story =
        Play(models, phases, lengths, kSecondsPerToken, kStoryBytes, pool);
    for (size_t i = 0; i < phases.size(); ++i) {
      const std::string what = absl::StrCat(phases[i].name, ", ", name);
      const Story::PhaseTotal& total = story.phases[i];
      report->Figure(what + ": KV in use (of pool)", total.used_of_pool);
      report->Figure(what + ": requests that wait", total.mean_waiting);
      report->Figure(what + ": wait for memory (s)", total.mean_wait_seconds);
      report->Figure(what + ": requests begun",
                     static_cast<double>(total.begun));
      waiting[scheme] += total.mean_waiting;
    }
    for (size_t m = 0; m < models.size(); ++m) {
      series.push_back({absl::StrCat(models[m].name, ", ", name), {}});
      for (const Story::Second& s : story.seconds) {
        series.back().values.push_back(s.waiting[m]);
      }
    }
    ++scheme;
  }
  report->Claim("requests that wait, slabs / fixed partition",
                waiting[1] / waiting[0], 1, Compare::kAtMost);
  return series;
}

About TheBench() {
  return {"fragmentation",
          kQuestion,
          {{"--data", "DIR", "../shared/data", "folder of the real lengths"},
           {"--svg", "PREFIX", "",
            "write PREFIX-mixes.svg, PREFIX-slopes.svg, PREFIX-story.svg"}}};
}

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(argc, argv, TheBench());
  const std::string data = arguments.Text("--data");
  const std::string svg = arguments.Text("--svg");
  Report report("fragmentation");
  std::vector<Series> shown;
  std::vector<Series> story;
  for (const char* set : {"sharegpt_firstturn", "arxiv_summarization"}) {
    const auto lengths = ReadLengths(
        absl::StrCat(data, "/lengths_", set, "_llama2tok_even.csv.gz"));
    if (!lengths.ok()) {
      fprintf(stderr, "fragmentation: %s; set the folder with --data\n",
              std::string(lengths.status().message()).c_str());
      return 1;
    }
    const auto series = MeasureMixes(set, *lengths, &report);
    if (!shown.empty()) continue;
    shown = series;
    story = MeasureStory(*lengths, &report);
  }
  const std::vector<double> gib = {0, 10, 20, 30, 40, 50, 60};
  const auto slopes = MeasureSlopes(gib, &report);
  if (!svg.empty()) {
    std::vector<std::string> groups;
    for (const Mix& mix : Mixes()) groups.push_back(mix.name);
    if (!Write(svg + "-mixes.svg",
               BarChart("Tokens cached when the first allocation fails, "
                        "ShareGPT (first turn), 64 GiB",
                        "of ideal", groups, shown, 1.0, 0.95)) ||
        !Write(svg + "-slopes.svg",
               LineChart("Tokens cached by pool size", "KV pool (GiB)",
                         "thousand tokens", gib, slopes)) ||
        !Write(svg + "-story.svg",
               LineChart("Requests that wait for KV memory while the load "
                         "shifts (at 120 s and 240 s)",
                         "seconds", "requests", SecondsOf(story), story))) {
      return 1;
    }
  }
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
