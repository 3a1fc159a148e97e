#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/fsctl/plan/plan_output.h"

namespace fineserve::fsctl {
namespace {

constexpr double kLeft = 140, kWidth = 720, kRow = 34, kBar = 22, kTop = 56;
constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr char kWeights[] = "#4a6fa5", kActivations[] = "#8fb3d9",
               kFloor[] = "#c98b3c", kContested[] = "#e6e6e6";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A piece of a bar; its title shows up under the pointer.
class Bar {
 public:
  Bar(double y, double scale, std::string* svg)
      : y_(y), scale_(scale), svg_(svg) {}

  void Add(double bytes, const char* fill, const std::string& what) {
    const double width = std::max(bytes, 0.0) * scale_;
    absl::StrAppendFormat(
        svg_,
        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
        "fill=\"%s\" stroke=\"white\" stroke-width=\"0.5\"><title>%s: %.1f "
        "GiB</title></rect>\n",
        x_, y_, width, kBar, fill, Escaped(what), bytes / kGib);
    x_ += width;
  }

  void Name(const std::string& name) {
    absl::StrAppendFormat(svg_,
                          "<text x=\"%.2f\" y=\"%.2f\" "
                          "text-anchor=\"end\">%s</text>\n",
                          kLeft - 8, y_ + 15, Escaped(name));
  }

 private:
  double x_ = kLeft;
  double y_, scale_;
  std::string* svg_;
};

void AddLegend(std::string* svg) {
  const struct {
    const char* fill;
    const char* name;
  } entries[] = {{kWeights, "weights"},
                 {kActivations, "activations"},
                 {kFloor, "KV floors"},
                 {kContested, "contested"}};
  double x = kLeft;
  for (const auto& e : entries) {
    absl::StrAppendFormat(svg,
                          "<rect x=\"%.0f\" y=\"30\" width=\"12\" "
                          "height=\"12\" fill=\"%s\"/><text x=\"%.0f\" "
                          "y=\"40\">%s</text>\n",
                          x, e.fill, x + 17, e.name);
    x += 120;
  }
}

}  // namespace

std::string PlanSvg(const plan::Snapshot& snapshot, const plan::Plan& plan) {
  const std::vector<GpuUse> uses = UseOf(snapshot, plan);
  double largest = 1;
  for (const GpuUse& use : uses) largest = std::max(largest, use.capacity);
  const double height = kTop + kRow * static_cast<double>(uses.size()) + 10;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<text x=\"%.0f\" y=\"18\" font-size=\"14\">%s: %.0f of %.0f "
      "tokens/s</text>\n",
      kLeft + kWidth + 20, height, kLeft, plan.policy, plan.worth.goodput,
      plan.demand);
  AddLegend(&svg);
  double y = kTop;
  for (const GpuUse& use : uses) {
    Bar bar(y, kWidth / largest, &svg);
    bar.Name(use.gpu);
    for (const GpuUse::Resident& r : use.residents) {
      bar.Add(r.weights, kWeights, r.model + " weights");
      bar.Add(r.activations, kActivations, r.model + " activations");
      bar.Add(r.floor, kFloor, r.model + " KV floor");
    }
    bar.Add(use.Contested(), kContested, "contested");
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace fineserve::fsctl
