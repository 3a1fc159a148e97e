#include "tools/fsctl/daemons/slab_states.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/slab_state_name.h"
#include "kernels/driver/rounding.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using abi::SlabState;

struct StateLook {
  char mark;
  Color color;
};
// In the order of SlabState.
constexpr StateLook kLooks[abi::kSlabStateCount] = {
    {'.', Color::kGreen},  {'-', Color::kNone},   {'#', Color::kNone},
    {'0', Color::kYellow}, {'<', Color::kYellow}, {'!', Color::kRed},
    {'_', Color::kDim},
};

const StateLook& Look(SlabState state) {
  return kLooks[static_cast<size_t>(state)];
}

// Returns the state that is shown for slabs [first, last).
SlabState Prevailing(const abi::TableSnapshot& table, size_t first,
                     size_t last) {
  StateCounts counts;
  for (size_t i = first; i < last; ++i) {
    ++counts.slabs[static_cast<size_t>(table.slabs[i].word.state)];
  }
  if (counts.of(SlabState::kQuarantined) > 0) return SlabState::kQuarantined;
  const auto most = std::max_element(counts.slabs.begin(), counts.slabs.end());
  return static_cast<SlabState>(most - counts.slabs.begin());
}

void Append(const StateLook& look, Line* bar) {
  if (bar->empty() || bar->back().color != look.color) {
    bar->push_back({"", look.color});
  }
  bar->back().text += look.mark;
}

}  // namespace

Color StateColor(SlabState state) { return Look(state).color; }

std::string StateMark(SlabState state) {
  return std::string(1, Look(state).mark);
}

StateCounts CountStates(const abi::TableSnapshot& table) {
  StateCounts counts;
  for (const abi::SlabSnapshot& slab : table.slabs) {
    ++counts.slabs[static_cast<size_t>(slab.word.state)];
  }
  return counts;
}

nlohmann::ordered_json StatesJson(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  nlohmann::ordered_json states;
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    const auto state = static_cast<SlabState>(i);
    states[abi::SlabStateName(state)] = {
        {"slabs", counts.of(state)},
        {"bytes", counts.of(state) * table.slab_bytes()}};
  }
  return states;
}

uint64_t PresentBytes(const abi::TableSnapshot& table) {
  const uint64_t absent = CountStates(table).of(SlabState::kAbsent);
  return (table.slabs.size() - absent) * table.slab_bytes();
}

std::string PoolSize(const abi::TableSnapshot& table) {
  const uint64_t present = PresentBytes(table);
  if (present == table.pool_bytes()) return Size(present);
  return absl::StrCat(Size(present), ", may grow to ",
                      Size(table.pool_bytes()));
}

std::string DeviceName(const abi::TableSnapshot& table) {
  const bool says_more = (table.flags & abi::kTableEmulatedDevice) != 0 &&
                         !absl::StrContains(table.gpu_name, "emulated");
  return absl::StrCat(table.gpu_name, says_more ? ", emulated" : "");
}

Line StateBar(const abi::TableSnapshot& table, size_t width) {
  const size_t n = table.slabs.size();
  const size_t group = DivideUp(n, width);
  Line bar;
  for (size_t first = 0; first < n; first += group) {
    Append(Look(Prevailing(table, first, std::min(n, first + group))), &bar);
  }
  return bar;
}

Line BracketedStateBar(const abi::TableSnapshot& table) {
  constexpr size_t kWidth = 64;
  Line bar = StateBar(table, kWidth);
  bar.insert(bar.begin(), "[");
  bar.push_back("]");
  return bar;
}

Line StateLegend(const abi::TableSnapshot& table) {
  const StateCounts counts = CountStates(table);
  Line legend;
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    const auto state = static_cast<SlabState>(i);
    if (counts.of(state) == 0) continue;
    legend.push_back(legend.empty() ? "" : "  ");
    legend.push_back({StateMark(state), StateColor(state)});
    legend.push_back(absl::StrCat(" ", abi::SlabStateName(state)));
  }
  return legend;
}

}  // namespace fineserve::fsctl
