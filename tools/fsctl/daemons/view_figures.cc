#include "tools/fsctl/daemons/view_figures.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "daemon/pool/geometry/slab_layout.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;

absl::StatusOr<slab::SlabLayout> LayoutOf(const abi::TableSnapshot& table,
                                          const abi::ViewRecord& view) {
  return slab::SlabLayout::Create(
      {table.granule_bytes, table.granules_per_slab,
       static_cast<uint32_t>(table.slabs.size())},
      {view.planes, view.page_bytes, view.block_tokens});
}

void Add(size_t slab, BlockCount count, ViewFigures* to) {
  to->slab_uses[slab] = count;
  to->blocks.used += count.used;
  to->blocks.usable += count.usable;
  if (count.used == 0) {
    ++to->empty_slabs;
  } else if (count.free() > 0) {
    ++to->partly_used_slabs;
    to->stranded_blocks += count.free();
  }
}

// Returns DataLoss if the scoreboard contradicts the table, since an engine may
// write anything to its scoreboard.
absl::Status CountBlocks(const abi::TableSnapshot& table, uint32_t engine,
                         const slab::SlabLayout& layout, ViewFigures* to) {
  if (to->scoreboard.used.size() != table.slabs.size() + 1) {
    return absl::DataLossError(absl::StrCat(
        "its view scoreboard covers ", to->scoreboard.used.size() - 1,
        " slabs, but the pool has ", table.slabs.size()));
  }
  for (size_t i = 0; i < table.slabs.size(); ++i) {
    const abi::SlabWord word = table.slabs[i].word;
    if (word.engine != engine || !IsInView(word)) continue;
    const BlockCount count = {to->scoreboard.used[i + 1],
                              layout.Blocks(i + 1).size()};
    if (count.used > count.usable) {
      return absl::DataLossError(absl::StrCat(
          "its view scoreboard claims ", count.used, " used blocks in slab ", i,
          ", which has ", count.usable));
    }
    Add(i, count, to);
  }
  return absl::OkStatus();
}

ViewFigures FiguresOf(const Observation& seen,
                      const abi::EngineSnapshot& engine) {
  ViewFigures figures;
  figures.view = engine.view;
  const auto given_up = seen.given_up_bytes.find(engine.id);
  if (given_up != seen.given_up_bytes.end()) {
    figures.given_up_bytes = given_up->second;
  }
  const auto layout = LayoutOf(seen.pool.table, engine.view);
  if (!layout.ok()) {
    figures.known = layout.status();
    return figures;
  }
  figures.tail_waste = layout->TailWaste();
  // StraddleWaste() is a difference: rounding may make it negative.
  figures.straddle_waste = std::max(0.0, layout->StraddleWaste());
  const auto scoreboard = seen.view_scoreboards.find(engine.id);
  if (scoreboard == seen.view_scoreboards.end()) {
    figures.known = absl::NotFoundError("its view scoreboard was not read");
  } else if (!scoreboard->second.ok()) {
    figures.known = scoreboard->second.status();
  } else {
    figures.scoreboard = *scoreboard->second;
    figures.known = CountBlocks(seen.pool.table, engine.id, *layout, &figures);
  }
  return figures;
}

}  // namespace

double BlockCount::density() const {
  return usable == 0 ? 0
                     : static_cast<double>(used) / static_cast<double>(usable);
}

FiguresByEngine Figures(const Observation& seen) {
  FiguresByEngine figures;
  for (const abi::EngineSnapshot& engine : seen.pool.table.engines) {
    if (engine.view.mode == abi::ViewMode::kNone) continue;
    figures.emplace(engine.id, FiguresOf(seen, engine));
  }
  return figures;
}

const ViewFigures* FindView(const FiguresByEngine& figures, uint32_t engine) {
  const auto view = figures.find(engine);
  return view == figures.end() ? nullptr : &view->second;
}

std::string FormatName(const abi::ViewRecord& view) {
  return absl::StrCat(view.planes, "×", Size(view.page_bytes), "/",
                      view.block_tokens);
}

const char* ModeName(abi::ViewMode mode) {
  static constexpr const char* kNames[] = {"none", "view", "guarded", "strict"};
  static_assert(std::size(kNames) ==
                static_cast<size_t>(abi::ViewMode::kStrict) + 1);
  return kNames[static_cast<size_t>(mode)];
}

}  // namespace fineserve::fsctl
