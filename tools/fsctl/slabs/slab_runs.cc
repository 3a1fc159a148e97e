#include "tools/fsctl/slabs/slab_runs.h"

#include <algorithm>
#include <functional>

#include "daemon/contract/abi/slab_state_name.h"
#include "tools/fsctl/daemons/slab_states.h"
#include "tools/fsctl/slabs/engine_names.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;

// A view has one lease per slab, so another lease does not end a run.
bool Continues(const SlabRun& run, abi::SlabWord word) {
  if (run.word.state != word.state || run.word.engine != word.engine) {
    return false;
  }
  return word.state != SlabState::kFull || run.word.lease == word.lease;
}

std::string FormatOf(abi::SlabWord word, const FiguresByEngine& figures) {
  if (word.state == SlabState::kFull) return "whole";
  const ViewFigures* view = FindView(figures, word.engine);
  return IsInView(word) && view != nullptr ? FormatName(view->view) : "-";
}

RunBlocks BlocksOf(size_t slab, abi::SlabWord word,
                   const FiguresByEngine& figures) {
  RunBlocks blocks;
  blocks.in_view = IsInView(word);
  const ViewFigures* view = FindView(figures, word.engine);
  if (!blocks.in_view || view == nullptr || !view->known.ok()) return blocks;
  const auto use = view->slab_uses.find(slab);
  if (use != view->slab_uses.end()) blocks.count = use->second;
  return blocks;
}

// A sum with an unknown part is unknown.
void Add(const RunBlocks& more, RunBlocks* to) {
  if (!more.in_view) return;
  if (!to->in_view) {
    *to = more;
  } else if (more.count.has_value() && to->count.has_value()) {
    to->count->used += more.count->used;
    to->count->usable += more.count->usable;
  } else {
    to->count.reset();
  }
}

double DensityOf(const SlabRun& run) {
  return run.blocks.count.has_value() ? run.blocks.count->density() : -1;
}

template <typename Key>
void SortBy(std::vector<SlabRun>* runs, Key key) {
  std::stable_sort(runs->begin(), runs->end(),
                   [&](const SlabRun& a, const SlabRun& b) {
                     return std::invoke(key, a) < std::invoke(key, b);
                   });
}

void Sort(std::vector<SlabRun>* runs, SlabOrder order) {
  switch (order) {
    case SlabOrder::kSlab:
      return;
    case SlabOrder::kState:
      return SortBy(runs, [](const SlabRun& r) { return r.word.state; });
    case SlabOrder::kFormat:
      return SortBy(runs, &SlabRun::format);
    case SlabOrder::kEngine:
      return SortBy(runs, [](const SlabRun& r) { return r.word.engine; });
    case SlabOrder::kAge:
      return SortBy(runs, &SlabRun::since_ns);
    case SlabOrder::kDensity:
      return SortBy(runs, [](const SlabRun& r) { return -DensityOf(r); });
  }
}

std::string GroupName(const abi::TableSnapshot& table, const SlabRun& run,
                      SlabOrder order) {
  if (order == SlabOrder::kState) return abi::SlabStateName(run.word.state);
  if (order == SlabOrder::kFormat) return run.format;
  return EngineCell(table, run.word.engine);
}

}  // namespace

std::vector<SlabRun> SlabRuns(const abi::TableSnapshot& table,
                              const FiguresByEngine& figures, bool fold,
                              SlabOrder order) {
  std::vector<SlabRun> runs;
  for (size_t i = 0; i < table.slabs.size(); ++i) {
    const abi::SlabSnapshot& slab = table.slabs[i];
    const RunBlocks blocks = BlocksOf(i, slab.word, figures);
    if (!fold || runs.empty() || !Continues(runs.back(), slab.word)) {
      const uint64_t leases = slab.word.lease == 0 ? 0 : 1;
      runs.push_back({i, i, slab.word, leases, slab.since_ns,
                      FormatOf(slab.word, figures), blocks});
      continue;
    }
    SlabRun& run = runs.back();
    run.last = i;
    if (slab.word.lease != table.slabs[i - 1].word.lease) ++run.leases;
    run.since_ns = std::max(run.since_ns, slab.since_ns);
    Add(blocks, &run.blocks);
  }
  Sort(&runs, order);
  return runs;
}

std::vector<SlabGroup> SlabGroups(const abi::TableSnapshot& table,
                                  const std::vector<SlabRun>& runs,
                                  SlabOrder order) {
  std::vector<SlabGroup> groups;
  if (order != SlabOrder::kState && order != SlabOrder::kFormat &&
      order != SlabOrder::kEngine) {
    return groups;
  }
  for (const SlabRun& run : runs) {
    const std::string name = GroupName(table, run, order);
    if (groups.empty() || groups.back().name != name) {
      groups.push_back({name, 0, {}});
    }
    groups.back().slabs += run.slabs();
    Add(run.blocks, &groups.back().blocks);
  }
  return groups;
}

}  // namespace fineserve::fsctl
