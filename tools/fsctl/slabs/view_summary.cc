#include "tools/fsctl/slabs/view_summary.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/view_messages.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Counted(uint64_t n, const char* what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

const char* Standing(abi::ViewState state) {
  if (state == abi::ViewState::kSuspended) return ", suspended";
  return state == abi::ViewState::kActive ? "" : ", not active yet";
}

std::string TitleLine(const abi::EngineSnapshot& engine,
                      const ViewFigures& figures) {
  const abi::ViewRecord& view = figures.view;
  return absl::StrCat("view      ", engine.id, " ", engine.name, ", pid ",
                      view.pid, ": ", FormatName(view), ", mode ",
                      ModeName(view.mode), Standing(view.state), "\n");
}

std::string ShareLine(const abi::ViewRecord& view) {
  return absl::StrCat("  slabs   ", view.leased, " leased",
                      view.returning == 0
                          ? ""
                          : absl::StrCat(" (", view.returning, " asked back)"),
                      ", floor ", view.floor, ", target ", view.target,
                      ", wanted ", view.wanted, ", cap ", view.cap, "\n");
}

// For a suspended engine: the memory that it leaves to other engines besides
// its slabs.
std::string GivenUpLine(const ViewFigures& figures) {
  if (!figures.given_up_bytes) return "";
  return absl::StrCat("  memory  ", Size(*figures.given_up_bytes),
                      " of the device given up beside the slabs\n");
}

bool SaysWhatIsSure(const ViewFigures& f) {
  return f.known.ok() && f.scoreboard.most_blocks != 0;
}

// For an engine that spans GPUs.
std::string SpanLine(const ViewFigures& f) {
  const abi::ViewRecord& view = f.view;
  if ((view.flags & abi::kViewOfGroup) == 0) return "";
  return absl::StrCat(
      "  spans   several GPUs: ", view.offer,
      " slabs offered here, the least of all counts; ",
      view.runs_pool == 0
          ? "no process runs its blocks\n"
          : absl::StrCat("pid ", view.runs_pool, " runs its blocks\n"),
      SaysWhatIsSure(f)
          ? absl::StrCat("          admission counts on ",
                         f.scoreboard.sure_blocks, " blocks at most (",
                         f.scoreboard.first_blocks,
                         " while it runs nothing), by the other GPUs\n")
          : "");
}

// The blocks that a request takes; null: one for each block_tokens.
Json RequestJson(const abi::KvShape& shape) {
  if (!abi::IsKnown(shape)) return nullptr;
  Json groups = Json::array();
  for (const abi::KvGroups& g : shape.groups) {
    if (g.count == 0) continue;
    groups.push_back({{"count", g.count},
                      {"block_tokens", g.block_tokens},
                      {"window_tokens", g.window_tokens}});
  }
  return {{"groups", std::move(groups)}, {"states", shape.states}};
}

Json SpanJson(const ViewFigures& f) {
  if ((f.view.flags & abi::kViewOfGroup) == 0) return nullptr;
  const auto said = [&](uint64_t blocks) {
    return SaysWhatIsSure(f) ? Json(blocks) : Json(nullptr);
  };
  return {{"offer", f.view.offer},
          {"pid", f.view.runs_pool},
          {"sure_blocks", said(f.scoreboard.sure_blocks)},
          {"first_blocks", said(f.scoreboard.first_blocks)},
          {"most_blocks", said(f.scoreboard.most_blocks)}};
}

std::string BlocksLine(const ViewFigures& f) {
  return absl::StrCat("  blocks  ", f.blocks.used, " of ", f.blocks.usable,
                      " used (", Percent(f.blocks.density()), "), ",
                      f.blocks.free(), " free: ", f.stranded_blocks, " in ",
                      Counted(f.partly_used_slabs, "partly used slab"), " (",
                      Size(f.stranded_bytes()), " lost), ",
                      f.blocks.free() - f.stranded_blocks, " in ",
                      Counted(f.empty_slabs, "empty slab"), "\n");
}

std::string WasteLine(const ViewFigures& f) {
  return absl::StrCat("  waste   tail ", Percent(f.tail_waste),
                      ", straddling blocks ", Percent(f.straddle_waste),
                      " of each slab\n");
}

std::string MissedLine(const ViewFigures& f) {
  return absl::StrCat("  missed  failed allocations ",
                      f.scoreboard.failed_allocations, ", watermark misses ",
                      f.scoreboard.watermark_misses, "\n");
}

Json ScoreboardJson(const ViewFigures& f) {
  return {{"used_blocks", f.blocks.used},
          {"usable_blocks", f.blocks.usable},
          {"free_blocks", f.blocks.free()},
          {"density", f.blocks.density()},
          {"partly_used_slabs", f.partly_used_slabs},
          {"empty_slabs", f.empty_slabs},
          {"stranded_blocks", f.stranded_blocks},
          {"stranded_bytes", f.stranded_bytes()},
          {"watermark_blocks", f.scoreboard.watermark_blocks},
          {"allocated_blocks", f.scoreboard.allocated_blocks},
          {"freed_blocks", f.scoreboard.freed_blocks},
          {"returned_slabs", f.scoreboard.returned_slabs},
          {"failed_allocations", f.scoreboard.failed_allocations},
          {"watermark_misses", f.scoreboard.watermark_misses},
          {"steps_begun", f.scoreboard.steps_begun},
          {"steps_ended", f.scoreboard.steps_ended},
          {"driver_calls_to_activate", f.scoreboard.driver_calls_to_activate},
          {"driver_calls_serving", f.scoreboard.driver_calls_serving},
          {"swaps", f.scoreboard.swaps},
          {"swaps_ns", f.scoreboard.swaps_ns},
          {"longest_swap_ns", f.scoreboard.longest_swap_ns}};
}

}  // namespace

std::string ViewText(const abi::EngineSnapshot& engine,
                     const ViewFigures& figures, bool color) {
  const std::string share = absl::StrCat(
      TitleLine(engine, figures), ShareLine(figures.view), SpanLine(figures));
  if (figures.view.state == abi::ViewState::kSuspended) {
    return absl::StrCat(share, GivenUpLine(figures));
  }
  if (!figures.known.ok()) {
    return absl::StrCat(
        share,
        Paint(color, Color::kYellow,
              absl::StrCat("  blocks  unknown: ", figures.known.message())),
        "\n", WasteLine(figures));
  }
  return absl::StrCat(share, BlocksLine(figures), WasteLine(figures),
                      MissedLine(figures));
}

Json ViewJson(const ViewFigures& figures) {
  const abi::ViewRecord& view = figures.view;
  Json json = {
      {"mode", ModeName(view.mode)},
      {"active", view.state == abi::ViewState::kActive},
      {"suspended", view.state == abi::ViewState::kSuspended},
      {"given_up_bytes",
       figures.given_up_bytes ? Json(*figures.given_up_bytes) : Json(nullptr)},
      {"pid", view.pid},
      {"format",
       {{"name", FormatName(view)},
        {"planes", view.planes},
        {"page_bytes", view.page_bytes},
        {"block_tokens", view.block_tokens},
        {"request", RequestJson(view.shape)}}},
      {"leased", view.leased},
      {"returning", view.returning},
      {"floor", view.floor},
      {"target", view.target},
      {"wanted", view.wanted},
      {"cap", view.cap},
      {"spans_gpus", SpanJson(figures)},
      {"tail_waste", figures.tail_waste},
      {"straddle_waste", figures.straddle_waste},
      {"blocks", nullptr},
      {"unknown", nullptr}};
  if (figures.known.ok()) {
    json["blocks"] = ScoreboardJson(figures);
  } else {
    json["unknown"] = std::string(figures.known.message());
  }
  return json;
}

std::string BlocksCell(const RunBlocks& blocks) {
  if (!blocks.in_view) return "-";
  if (!blocks.count.has_value()) return "?";
  return absl::StrCat(blocks.count->used, "/", blocks.count->usable, " ",
                      Percent(blocks.count->density(), 0));
}

void AddBlocks(const RunBlocks& blocks, Json* to) {
  for (const char* key : {"used_blocks", "usable_blocks", "density"}) {
    (*to)[key] = nullptr;
  }
  if (!blocks.count.has_value()) return;
  (*to)["used_blocks"] = blocks.count->used;
  (*to)["usable_blocks"] = blocks.count->usable;
  (*to)["density"] = blocks.count->density();
}

}  // namespace fineserve::fsctl
