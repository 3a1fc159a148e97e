#include "tools/fsctl/geometry/format_fit.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/geometry/slab_layout.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;
using slab::GeometryChoice;
using slab::SlabLayout;

// Returns the fraction of an H100's bandwidth at which it copies through
// granules of this size (design note 0008).
double BandwidthThrough(uint64_t granule_bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  if (granule_bytes >= 16 * kMiB) return 1;
  return granule_bytes >= 4 * kMiB ? 0.86 : 0.74;
}

Json CutJson(const slab::PoolGeometry& cut) {
  return {{"slab_bytes", cut.slab_bytes()},
          {"granule_bytes", cut.granule_bytes},
          {"granules_per_slab", cut.granules_per_slab},
          {"slabs", cut.slab_count},
          {"bandwidth", BandwidthThrough(cut.granule_bytes)},
          {"handles", cut.granule_count()}};
}

Json ChoiceJson(const GeometryChoice& choice) {
  Json json = CutJson(choice.geometry);
  json["waste"] = choice.waste;
  json["mean_waste"] = choice.mean_waste;
  json["remainder"] = choice.remainder;
  json["partial"] = choice.partial;
  json["cost"] = choice.cost();
  return json;
}

Json FormatJson(const NamedFormat& f) {
  return {{"name", f.name},
          {"planes", f.format.planes},
          {"page_bytes", f.format.page_bytes},
          {"block_bytes", f.format.block_bytes()},
          {"block_tokens", f.format.block_tokens}};
}

// Returns a table of the formats with the cost of one token, which users
// compare first.
std::string FormatsText(const std::vector<NamedFormat>& formats, bool color) {
  TextTable table(
      {"FORMAT", ">PLANES", ">PAGE BYTES", ">BLOCK", ">TOKENS", ">PER TOKEN"});
  for (const NamedFormat& f : formats) {
    table.Add({f.name, absl::StrCat(f.format.planes),
               absl::StrCat(f.format.page_bytes), Size(f.format.block_bytes()),
               absl::StrCat(f.format.block_tokens),
               Size(f.format.block_bytes() / f.format.block_tokens)});
  }
  return table.Render(color);
}

// Returns the interesting rows of a long frontier: those that waste a fifth
// less than the row before (heuristic), the chosen one, and the last.
std::vector<const GeometryChoice*> Shown(
    const std::vector<GeometryChoice>& frontier, const GeometryChoice* chosen,
    bool all) {
  std::vector<const GeometryChoice*> shown;
  for (const GeometryChoice& choice : frontier) {
    const bool step =
        shown.empty() || choice.waste <= 0.8 * shown.back()->waste;
    if (all || step || &choice == chosen || &choice == &frontier.back()) {
      shown.push_back(&choice);
    }
  }
  return shown;
}

std::string CutsText(const std::vector<GeometryChoice>& frontier,
                     const GeometryChoice* chosen, bool all, bool color) {
  TextTable table({"", ">SLAB", ">GRANULE", ">SLABS", ">HANDLES", ">WASTE",
                   ">REMAINDER", ">PART USE", ">COST"});
  for (const GeometryChoice* c : Shown(frontier, chosen, all)) {
    const bool best = c == chosen;
    table.Add(
        {{best ? "*" : " ", Color::kGreen},
         {Size(c->geometry.slab_bytes()), best ? Color::kGreen : Color::kNone},
         Size(c->geometry.granule_bytes),
         absl::StrCat(c->geometry.slab_count),
         absl::StrCat(c->geometry.granule_count()),
         Percent(c->waste),
         Percent(c->remainder),
         Percent(c->partial),
         Percent(c->cost())});
  }
  return table.Render(color);
}

std::string ReasonsText(const slab::SearchRequest& request,
                        const std::vector<NamedFormat>& formats,
                        const GeometryChoice& chosen) {
  const uint64_t engines =
      request.engines != 0 ? request.engines : formats.size();
  std::string text = absl::StrCat(
      "WASTE: granules that hold no plane and blocks that cross slab "
      "boundaries, for the worst format.\nREMAINDER: what is left after the "
      "last slab. PART USE: half a slab for each of ",
      engines, " engine", engines == 1 ? "" : "s",
      ".\nCOST: the sum of these; * marks the cheapest cut with at most ",
      request.max_handles, " handles.\n");
  const uint64_t exact = slab::ExactGranules(request.formats);
  if (!chosen.exact() && exact > chosen.geometry.granules_per_slab) {
    absl::StrAppend(&text, "Slabs without any tail need ",
                    Size(exact * chosen.geometry.granule_bytes), " (", exact,
                    " granules), the least common multiple of ",
                    absl::StrJoin(formats, ", ",
                                  [](std::string* out, const NamedFormat& f) {
                                    absl::StrAppend(out, f.format.planes);
                                  }),
                    " planes.\n");
  }
  return text;
}

struct Fit {
  const char* verdict;  // exact, padded, refused
  Color color;
};

Fit VerdictOf(const absl::StatusOr<SlabLayout>& layout) {
  if (!layout.ok()) return {"refused", Color::kRed};
  // StraddleWaste() is a difference, so its rounding errors are ignored.
  if (layout->Waste() < 1e-9) return {"exact", Color::kGreen};
  return {"padded", Color::kYellow};
}

void AddFit(const NamedFormat& f, const absl::StatusOr<SlabLayout>& layout,
            TextTable* table) {
  const Fit fit = VerdictOf(layout);
  if (!layout.ok()) {
    table->Add({f.name, {fit.verdict, fit.color}, "-", "-", "-", "-", "-"});
    return;
  }
  table->Add(
      {f.name,
       {fit.verdict, fit.color},
       absl::StrCat(layout->granules_per_plane()),
       absl::StrFormat("%.1f", layout->MeanBlocks()),
       absl::StrFormat("%.0f", layout->MeanBlocks() * f.format.block_tokens),
       Percent(layout->TailWaste()),
       Percent(layout->StraddleWaste())});
}

}  // namespace

std::string FitText(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, bool color,
                    int* refused) {
  TextTable table({"FORMAT", "FITS", ">GRANULES/PLANE", ">BLOCKS/SLAB",
                   ">TOKENS/SLAB", ">TAIL", ">STRADDLING"});
  std::string why;
  for (const NamedFormat& f : formats) {
    const auto layout = SlabLayout::Create(pool, f.format);
    AddFit(f, layout, &table);
    if (layout.ok()) continue;
    ++*refused;
    absl::StrAppend(&why, f.name, ": ", layout.status().message(), "\n");
  }
  const double bandwidth = BandwidthThrough(pool.granule_bytes);
  if (bandwidth < 1) {
    absl::StrAppend(&why, "An H100 copies through granules of ",
                    Size(pool.granule_bytes), " at ",
                    absl::StrFormat("%.2f", bandwidth),
                    " of its bandwidth; granules of 16 MiB and more lose "
                    "nothing (larger slabs, or fewer planes).\n");
  }
  return absl::StrCat(slab::Describe(pool), "\n\n", table.Render(color), why);
}

std::string FitJson(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, int* refused) {
  Json fits = Json::array();
  for (const NamedFormat& f : formats) {
    const auto layout = SlabLayout::Create(pool, f.format);
    Json fit = FormatJson(f);
    fit["fits"] = VerdictOf(layout).verdict;
    if (layout.ok()) {
      fit["granules_per_plane"] = layout->granules_per_plane();
      fit["blocks_per_slab"] = layout->MeanBlocks();
      fit["least_blocks_per_slab"] = layout->LeastBlocks();
      fit["view_blocks"] = layout->ViewBlocks();
      fit["tail_waste"] = layout->TailWaste();
      fit["straddle_waste"] = layout->StraddleWaste();
    } else {
      ++*refused;
      fit["reason"] = std::string(layout.status().message());
    }
    fits.push_back(fit);
  }
  Json out = CutJson(pool);
  out["formats"] = fits;
  return JsonText(out);
}

std::string FrontierText(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<GeometryChoice>& frontier, bool all,
                         bool color) {
  const GeometryChoice& chosen = Cheapest(frontier);
  int refused = 0;
  return absl::StrCat(FormatsText(formats, color), "\nCuts of ",
                      Size(request.pool_bytes), ":\n",
                      CutsText(frontier, &chosen, all, color),
                      ReasonsText(request, formats, chosen), "\n* ",
                      FitText(chosen.geometry, formats, color, &refused));
}

std::string FrontierJson(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<GeometryChoice>& frontier) {
  Json cuts = Json::array();
  for (const GeometryChoice& choice : frontier) {
    cuts.push_back(ChoiceJson(choice));
  }
  int refused = 0;
  const GeometryChoice& chosen = Cheapest(frontier);
  const Json out = {
      {"pool_bytes", request.pool_bytes},
      {"exact_granules", slab::ExactGranules(request.formats)},
      {"frontier", cuts},
      {"chosen", ChoiceJson(chosen)},
      {"fit", Json::parse(FitJson(chosen.geometry, formats, &refused))}};
  return JsonText(out);
}

namespace {

// Stores a value; false if it is invalid.
using Setter = std::function<bool(const std::string& value)>;
using Keys = std::map<std::string, Setter>;

Setter Number(uint32_t* to) {
  return [to](const std::string& value) { return absl::SimpleAtoi(value, to); };
}

Setter Bytes(uint64_t* to) {
  return [to](const std::string& value) {
    return abi::ParseByteSize(value.c_str(), to);
  };
}

template <typename Value>
Setter OneOf(std::map<std::string, Value> values, Value* to) {
  return [values = std::move(values), to](const std::string& value) {
    const auto found = values.find(value);
    if (found != values.end()) *to = found->second;
    return found != values.end();
  };
}

absl::Status SetOne(const std::string& item, const Keys& keys) {
  const std::pair<std::string, std::string> pair =
      absl::StrSplit(item, absl::MaxSplits('=', 1));
  const auto key = keys.find(pair.first);
  if (key == keys.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown key \"", pair.first, "\"; the keys are ",
        absl::StrJoin(keys, ", ", [](std::string* out, const auto& known) {
          absl::StrAppend(out, known.first);
        })));
  }
  if (!key->second(pair.second)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", pair.second, "\" is not a value for ", pair.first));
  }
  return absl::OkStatus();
}

// Reads "[NAME:]key=value,..." and returns the name.
absl::StatusOr<std::string> Read(const std::string& text, const Keys& keys) {
  const size_t colon = text.find(':');
  const std::string list =
      colon == std::string::npos ? text : text.substr(colon + 1);
  for (const auto& item : absl::StrSplit(list, ',')) {
    if (absl::Status status = SetOne(std::string(item), keys); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\": ", status.message()));
    }
  }
  return colon == std::string::npos ? text : text.substr(0, colon);
}

}  // namespace

absl::StatusOr<NamedFormat> ParseFormat(const std::string& text) {
  slab::Format format;
  format.block_tokens = 16;
  const auto name = Read(text, {{"planes", Number(&format.planes)},
                                {"page", Bytes(&format.page_bytes)},
                                {"tokens", Number(&format.block_tokens)}});
  if (!name.ok()) return name.status();
  if (format.planes == 0 || format.page_bytes == 0 ||
      format.block_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\": a format needs planes= and page=, both above 0"));
  }
  return NamedFormat{*name, format};
}

absl::StatusOr<NamedFormat> ParseModel(const std::string& text) {
  slab::KvShape shape;
  const std::map<std::string, uint32_t> precisions = {
      {"fp32", 32}, {"fp16", 16}, {"bf16", 16}, {"fp8", 8},
      {"int8", 8},  {"fp4", 4},   {"int4", 4}};
  const std::map<std::string, slab::Layout> layouts = {
      {"layers", slab::Layout::kLayers},
      {"split", slab::Layout::kSplit},
      {"packed", slab::Layout::kPacked}};
  const auto name =
      Read(text, {{"layers", Number(&shape.layers)},
                  {"kv-heads", Number(&shape.kv_heads)},
                  {"head-dim", Number(&shape.head_dim)},
                  {"precision", OneOf(precisions, &shape.value_bits)},
                  {"tp", Number(&shape.tp_degree)},
                  {"quant-bytes", Bytes(&shape.quant_bytes)},
                  {"tokens", Number(&shape.block_tokens)},
                  {"layout", OneOf(layouts, &shape.layout)}});
  if (!name.ok()) return name.status();
  const absl::StatusOr<slab::Format> format = FormatOf(shape);
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": ", format.status().message()));
  }
  return NamedFormat{*name, *format};
}

}  // namespace fineserve::fsctl
