#include "tools/fsctl/plan/plan_output.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Bytes(double bytes) {
  return Size(static_cast<uint64_t>(std::max(bytes, 0.0)));
}

const char* SharingName(plan::Sharing sharing) {
  switch (sharing) {
    case plan::Sharing::kPool:
      return "one pool";
    case plan::Sharing::kFootprint:
      return "parts in proportion to footprints";
    case plan::Sharing::kEqual:
      return "equal parts";
    case plan::Sharing::kTime:
      return "turns";
  }
  return "";
}

bool HasContexts(const plan::Plan& plan) {
  return std::any_of(
      plan.replicas.begin(), plan.replicas.end(),
      [](const plan::PlannedReplica& r) { return r.context_bytes > 0; });
}

std::string ReplicaTable(const plan::Plan& plan, bool color) {
  const bool contexts = HasContexts(plan);
  std::vector<std::string> titles = {"MODEL",    "GPUS",         ">REQUESTS/S",
                                     ">WEIGHTS", ">ACTIVATIONS", ">FLOOR",
                                     ">KV",      ">TOKENS/S"};
  if (contexts) titles.push_back(">CONTEXT");
  TextTable table(titles);
  for (const plan::PlannedReplica& r : plan.replicas) {
    const bool placed = !r.gpus.empty();
    const std::string name =
        r.number == 0 ? r.model : absl::StrCat(r.model, "#", r.number);
    std::vector<Span> row = {
        name,
        placed ? Span(absl::StrJoin(r.gpus, " + "))
               : Span("no place", Color::kRed),
        placed ? absl::StrFormat("%.3g", r.target_rate) : "-",
        Bytes(r.weight_bytes),
        Bytes(r.activation_bytes),
        placed ? Bytes(r.floor_bytes) : "-",
        placed ? Bytes(r.kv_bytes) : "-",
        placed ? absl::StrFormat("%.0f", r.tokens_per_s) : "-"};
    if (contexts) row.push_back(Bytes(r.context_bytes));
    table.Add(row);
  }
  return table.Render(color);
}

std::string Names(const std::vector<GpuUse::Resident>& residents) {
  if (residents.empty()) return "-";
  return absl::StrJoin(residents, ", ",
                       [](std::string* out, const GpuUse::Resident& r) {
                         absl::StrAppend(out, r.model);
                       });
}

std::string GpuTable(const plan::Snapshot& s, const plan::Plan& plan,
                     bool color) {
  std::vector<std::string> titles = {"GPU", ">MEMORY", ">CONTESTED", "MODELS"};
  if (!plan.hosts.empty()) titles.push_back("RESTING");
  TextTable table(titles);
  for (const GpuUse& use : UseOf(s, plan)) {
    std::vector<Span> row = {use.gpu, Bytes(use.capacity),
                             Bytes(use.Contested()), Names(use.residents)};
    if (!plan.hosts.empty()) row.push_back(Names(use.resting));
    table.Add(row);
  }
  return table.Render(color);
}

// Returns the table of the nodes' host memory; empty if it is known for no
// node.
std::string NodeTable(const plan::Plan& plan, bool color) {
  if (plan.hosts.empty()) return "";
  TextTable table({"NODE", ">HOST MEMORY", ">PROCESSES", ">STORE", ">FREE"});
  for (const plan::HostUse& h : plan.hosts) {
    table.Add({h.node.empty() ? "-" : h.node, Bytes(h.host_bytes),
               Bytes(h.process_bytes), Bytes(h.store_bytes),
               Bytes(h.host_bytes - h.process_bytes - h.store_bytes)});
  }
  return table.Render(color) + "\n";
}

std::string GapText(const plan::Plan& plan) {
  if (plan.gap.exact) {
    return absl::StrFormat("%.2f %% below the best plan (%.0f tokens/s, exact)",
                           100 * plan.gap.relative, plan.gap.best);
  }
  return absl::StrFormat(
      "at most %.2f %% below the best plan (no plan exceeds %.0f tokens/s: all "
      "memory as one)",
      100 * plan.gap.relative, plan.gap.best);
}

std::string PriceText(const char* what, const plan::GpuPrice& p) {
  std::string text = absl::StrFormat("%s %s: ", what, p.gpu);
  if (p.hosted != 0) {
    absl::StrAppendFormat(&text, "%d model%s, ", p.hosted,
                          p.hosted == 1 ? "" : "s");
  }
  absl::StrAppendFormat(&text, "%.0f tokens/s, %.0f in a burst\n", p.tokens,
                        p.headroom);
  return text;
}

Json ReplicaJson(const plan::PlannedReplica& r) {
  Json json = {{"model", r.model},
               {"number", r.number},
               {"gpus", r.gpus},
               {"target_rate", r.target_rate},
               {"weight_bytes", r.weight_bytes},
               {"activation_bytes", r.activation_bytes},
               {"floor_bytes", r.floor_bytes},
               {"kv_bytes", r.kv_bytes},
               {"tokens_per_s", r.tokens_per_s}};
  if (r.context_bytes > 0) json["context_bytes"] = r.context_bytes;
  return json;
}

const char* WhyName(plan::NotResting::Why why) {
  switch (why) {
    case plan::NotResting::Why::kHostMemory:
      return "host memory";
    case plan::NotResting::Why::kGpuMemory:
      return "GPU memory";
    case plan::NotResting::Why::kHostUnknown:
      return "host memory not known";
    case plan::NotResting::Why::kMayNot:
      return "may_rest not set";
  }
  return "";
}

// Adds the resting processes if a node's host memory is known.
void AddResting(const plan::Plan& plan, Json* json) {
  if (plan.hosts.empty()) return;
  Json hosts = Json::array(), resting = Json::array(),
       not_resting = Json::array();
  for (const plan::HostUse& h : plan.hosts) {
    hosts.push_back({{"node", h.node},
                     {"host_bytes", h.host_bytes},
                     {"process_bytes", h.process_bytes},
                     {"store_bytes", h.store_bytes}});
  }
  for (const plan::RestingPlace& r : plan.resting) {
    resting.push_back({{"model", r.model},
                       {"gpu", r.gpu},
                       {"node", r.node},
                       {"context_bytes", r.context_bytes},
                       {"process_bytes", r.process_bytes},
                       {"store_bytes", r.store_bytes}});
  }
  for (const plan::NotResting& n : plan.not_resting) {
    not_resting.push_back({{"model", n.model},
                           {"node", n.node},
                           {"places", n.places},
                           {"why", WhyName(n.why)},
                           {"culprit", n.culprit},
                           {"missing_bytes", n.missing_bytes}});
  }
  (*json)["nodes"] = hosts;
  (*json)["resting"] = resting;
  (*json)["not_resting"] = not_resting;
}

Json PricesJson(const std::vector<plan::GpuPrice>& prices) {
  Json all = Json::array();
  for (const plan::GpuPrice& p : prices) {
    all.push_back({{"gpu", p.gpu},
                   {"models", p.hosted},
                   {"tokens_per_s", p.tokens},
                   {"tokens_per_s_in_a_burst", p.headroom}});
  }
  return all;
}

Json ReasonJson(const plan::Reason& r) {
  Json considered = Json::array();
  for (const plan::ConsideredGroup& c : r.considered) {
    considered.push_back({{"gpus", c.gpus}, {"score", c.score}});
  }
  return {{"replica", r.replica},
          {"turn", r.turn},
          {"order", r.order},
          {"measure", r.measure},
          {"least_is_best", r.least_is_best},
          {"considered", considered},
          {"rejected", r.rejected}};
}

}  // namespace

double GpuUse::Contested() const {
  double left = capacity;
  for (const Resident& r : residents) {
    left -= r.weights + r.activations + r.floor + r.context;
  }
  for (const Resident& r : resting) left -= r.context;
  return left;
}

std::vector<GpuUse> UseOf(const plan::Snapshot& s, const plan::Plan& plan) {
  std::map<std::string, GpuUse> uses;
  for (const plan::Gpu& g : s.gpus) uses[g.name] = {g.name, g.Capacity(), {}};
  for (const plan::PlannedReplica& r : plan.replicas) {
    for (const std::string& gpu : r.gpus) {
      uses[gpu].residents.push_back({r.model, r.weight_bytes,
                                     r.activation_bytes, r.floor_bytes,
                                     r.context_bytes});
    }
  }
  for (const plan::RestingPlace& r : plan.resting) {
    uses[r.gpu].resting.push_back({r.model, 0, 0, 0, r.context_bytes});
  }
  std::vector<GpuUse> all;
  for (const auto& [name, use] : uses) all.push_back(use);
  return all;
}

std::string PlanText(const plan::Snapshot& s, const plan::Plan& plan,
                     bool color) {
  std::string text = ReplicaTable(plan, color);
  absl::StrAppend(&text, "\n", GpuTable(s, plan, color), "\n",
                  NodeTable(plan, color));
  absl::StrAppend(&text, "policy ", plan.policy, " (",
                  plan::TierName(plan.tier), ": ", plan.source,
                  "), KV shared as ", SharingName(plan.sharing), "\n");
  absl::StrAppendFormat(
      &text, "%d of %d models hosted, %.0f of %.0f tokens/s; KVPR %.3g (v1)\n",
      plan.worth.hosted, s.models.size(), plan.worth.goodput, plan.demand,
      plan.kvpr_v1);
  absl::StrAppend(&text, GapText(plan), "\n");
  for (const plan::GpuPrice& p : plan.added) {
    absl::StrAppend(&text, PriceText("another GPU like", p));
  }
  for (const plan::GpuPrice& p : plan.lost) {
    absl::StrAppend(&text, PriceText("losing", p));
  }
  for (const plan::Trouble& t : plan.troubles) {
    absl::StrAppend(&text, Paint(color, Color::kYellow, t.text), "\n");
  }
  return text;
}

std::string PlanJson(const plan::Snapshot& s, const plan::Plan& plan) {
  Json replicas = Json::array(), troubles = Json::array(),
       reasons = Json::array();
  for (const auto& r : plan.replicas) replicas.push_back(ReplicaJson(r));
  for (const auto& r : plan.reasons) reasons.push_back(ReasonJson(r));
  for (const auto& t : plan.troubles) {
    troubles.push_back({{"model", t.model}, {"text", t.text}});
  }
  Json json = {{"policy", plan.policy},
               {"tier", plan::TierName(plan.tier)},
               {"source", plan.source},
               {"sharing", SharingName(plan.sharing)},
               {"models", s.models.size()},
               {"hosted", plan.worth.hosted},
               {"tokens_per_s", plan.worth.goodput},
               {"tokens_per_s_in_a_burst", plan.worth.headroom},
               {"tokens_per_s_asked", plan.demand},
               {"kvpr_v1", plan.kvpr_v1},
               {"kvpr_v3", plan.kvpr_v3},
               {"gap",
                {{"relative", plan.gap.relative},
                 {"best_tokens_per_s", plan.gap.best},
                 {"exact", plan.gap.exact}}},
               {"replicas", replicas},
               {"troubles", troubles},
               {"gpu_added", PricesJson(plan.added)},
               {"gpu_lost", PricesJson(plan.lost)},
               {"reasons", reasons}};
  AddResting(plan, &json);
  return JsonText(json);
}

std::string WhatIfText(const plan::Plan& before, const plan::Plan& after) {
  std::string text = absl::StrFormat(
      "what if: %d instead of %d models hosted, %.0f instead of %.0f tokens/s "
      "(asked: %.0f instead of %.0f)",
      after.worth.hosted, before.worth.hosted, after.worth.goodput,
      before.worth.goodput, after.demand, before.demand);
  if (!before.hosts.empty() || !after.hosts.empty()) {
    absl::StrAppendFormat(&text, ", %d instead of %d places rest",
                          after.resting.size(), before.resting.size());
  }
  return text + "\n";
}

namespace {

constexpr double kLeft = 140, kWidth = 720, kRow = 34, kBar = 22, kTop = 56;
constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr char kWeights[] = "#4a6fa5", kActivations[] = "#8fb3d9",
               kFloor[] = "#c98b3c", kContested[] = "#e6e6e6",
               kContexts[] = "#7a7a7a";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Draws the pieces of a bar. The title of a piece shows up under the pointer.
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

void AddLegend(bool contexts, std::string* svg) {
  struct Entry {
    const char* fill;
    const char* name;
  };
  std::vector<Entry> entries = {{kWeights, "weights"},
                                {kActivations, "activations"},
                                {kFloor, "KV floors"},
                                {kContested, "contested"}};
  if (contexts) entries.push_back({kContexts, "contexts"});
  double x = kLeft;
  for (const Entry& e : entries) {
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
  const bool contexts = HasContexts(plan);
  AddLegend(contexts, &svg);
  double y = kTop;
  for (const GpuUse& use : uses) {
    Bar bar(y, kWidth / largest, &svg);
    bar.Name(use.gpu);
    for (const GpuUse::Resident& r : use.residents) {
      bar.Add(r.weights, kWeights, r.model + " weights");
      bar.Add(r.activations, kActivations, r.model + " activations");
      bar.Add(r.floor, kFloor, r.model + " KV floor");
      if (contexts) bar.Add(r.context, kContexts, r.model + " context");
    }
    for (const GpuUse::Resident& r : use.resting) {
      if (contexts) bar.Add(r.context, kContexts, r.model + " resting context");
    }
    bar.Add(use.Contested(), kContested, "contested");
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace fineserve::fsctl
