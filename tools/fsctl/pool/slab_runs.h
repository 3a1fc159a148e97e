#ifndef TOOLS_FSCTL_POOL_SLAB_RUNS_H_
#define TOOLS_FSCTL_POOL_SLAB_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/fsctl/pool/slab_order.h"
#include "tools/fsctl/pool/view_figures.h"

namespace fineserve::fsctl {

// "The blocks of these slabs": none where they have none, unknown where the
// engine's word is missing.
struct RunBlocks {
  bool in_view = false;
  std::optional<BlockCount> count;  // of slabs in a view, if it is known
};

// Slabs [first, last]: of one state and engine and, where leased as a whole, of
// one lease.
struct SlabRun {
  size_t first;
  size_t last;
  abi::SlabWord word;  // of the first
  uint64_t leases;     // how many the slabs have
  uint64_t since_ns;   // of the latest change
  std::string format;  // FormatName, "whole", or "-"
  RunBlocks blocks;

  uint64_t slabs() const { return last - first + 1; }
};

// Without `fold` each slab is a run.
std::vector<SlabRun> SlabRuns(const abi::TableSnapshot& table,
                              const FiguresByEngine& figures, bool fold,
                              SlabOrder order);

// Runs that the order holds for alike, added up.
struct SlabGroup {
  std::string name;
  uint64_t slabs;
  RunBlocks blocks;
};
// Of runs in this order; empty unless it is state, format or engine.
std::vector<SlabGroup> SlabGroups(const abi::TableSnapshot& table,
                                  const std::vector<SlabRun>& runs,
                                  SlabOrder order);

// "3 vllm-a"; "-" for 0, "(unknown)" for an engine that the table does not list
// (any more).
std::string EngineCell(const abi::TableSnapshot& table, uint32_t id);
// "" for one that it does not list.
std::string EngineName(const abi::TableSnapshot& table, uint32_t id);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_SLAB_RUNS_H_
