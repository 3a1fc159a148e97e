#ifndef TOOLS_FSCTL_DAEMONS_SLAB_STATES_H_
#define TOOLS_FSCTL_DAEMONS_SLAB_STATES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {

Color StateColor(abi::SlabState state);
// The character that StateBar shows for the state.
std::string StateMark(abi::SlabState state);

struct StateCounts {
  std::array<uint64_t, abi::kSlabStateCount> slabs = {};

  uint64_t of(abi::SlabState state) const {
    return slabs[static_cast<size_t>(state)];
  }
  uint64_t leased() const {
    return of(abi::SlabState::kPartial) + of(abi::SlabState::kFull);
  }
};
StateCounts CountStates(const abi::TableSnapshot& table);

// Returns slabs and bytes by the name of their state.
nlohmann::ordered_json StatesJson(const abi::TableSnapshot& table);

// Returns the bytes of the slabs that have memory.
uint64_t PresentBytes(const abi::TableSnapshot& table);

// "64 MiB", or "64 MiB, may grow to 128 MiB".
std::string PoolSize(const abi::TableSnapshot& table);

// Returns the device's name, and says that it is emulated unless the name does
// so.
std::string DeviceName(const abi::TableSnapshot& table);

// Returns one character per slab, or per group of slabs if there are more than
// `width`: the most common state of the group, but a quarantined slab always
// shows.
Line StateBar(const abi::TableSnapshot& table, size_t width);
// "[##--..]", as wide as fsctl prints it.
Line BracketedStateBar(const abi::TableSnapshot& table);

// ". free  # full": what the bar's characters mean, for states that occur.
Line StateLegend(const abi::TableSnapshot& table);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_SLAB_STATES_H_
