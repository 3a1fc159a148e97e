// Prism, Figure 9: the time of an activation, from the rates of links.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/paper/compared_systems/engines.h"
#include "bench/paper/figures.h"

namespace fineserve::bench {
namespace {

// Time in which an unchanged engine comes back on an H100, with 8 GiB of
// weights (bench/results).
constexpr double kMeasuredSeconds = 0.18, kMeasuredBytes = 8.0 * (1 << 30);

struct Activated {
  const char* model;
  double bytes;  // FP16 (calibration_models.csv of the data)
  uint32_t gpus;
  double printed_s;
};
constexpr Activated kModels[] = {
    {"Llama 3.1 8B", 16.06e9, 1, 0.7},
    {"Qwen 2.5 14B", 29.54e9, 1, 1.3},
    {"Llama 3.1 70B, TP 8", 141.1e9, 8, 1.5},
};

}  // namespace

Figure PrismFigure9(const Data&, const Effort&) {
  Figure f;
  f.id = "prism9";
  f.title = "Prism, Figure 9: time of an activation (computed, not run)";
  f.question = "How long does a model take to come back to its GPUs?";
  Table table{
      "Seconds",
      {"model", "paper", "at the link's rate", "at a measured way back"},
      {}};
  for (const Activated& m : kModels) {
    const double bytes = m.bytes / m.gpus;
    const double by_link = bytes / kLinkBytesPerUs / 1e6;
    const double measured = bytes / kMeasuredBytes * kMeasuredSeconds;
    table.rows.push_back({m.model, absl::StrCat(m.printed_s),
                          absl::StrFormat("%.2f", by_link),
                          absl::StrFormat("%.2f", measured)});
    f.comparisons.push_back(
        {.what = absl::StrCat(m.model,
                              ": times as fast as printed, at a "
                              "measured way back (1: as fast)"),
         .paper = 1,
         .even = 0.8,
         .ours = {m.printed_s / measured, 0}});
  }
  f.tables = {table};
  f.provenance = {
      "computed: bytes of a GPU's part over the rate of its link (55.4 GB/s, "
      "PCIe of the fifth generation), or in proportion to 8 GiB of an "
      "unchanged engine that came back in 0.18 s on an H100 (bench/results)",
      "TP 8: eight links at once, as if the host's memory gave 440 GB/s; no "
      "machine of that kind was measured",
      "Prism loads through several GPUs at once from pageable memory; our "
      "store is pinned"};
  f.because = "";
  return f;
}

}  // namespace fineserve::bench
