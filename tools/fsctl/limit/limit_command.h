#ifndef TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_
#define TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/daemons/find_engine.h"

namespace fineserve::fsctl {

// Argument of `fsctl limit`: "30%" of the pool, "8GiB", or "none". A percentage
// is turned into slabs when the command is given, and their number stays when
// the pool grows or shrinks.
struct LimitAmount {
  enum class Kind { kNone, kPercent, kBytes };
  Kind kind = Kind::kNone;
  uint64_t amount = 0;  // hundredths of a percent, or bytes
};

// Parses the argument. An error says which forms are allowed.
absl::StatusOr<LimitAmount> ParseLimitAmount(const std::string& text);

// Returns whole slabs, rounded down, since a limit must never exceed what was
// asked for. 0 for kNone; InvalidArgument if the amount is less than one slab.
absl::StatusOr<uint32_t> SlabsOf(const LimitAmount& amount,
                                 const abi::TableSnapshot& table);

// Returns the amount in slabs before rounding, such as "4.8"; empty if it is
// whole.
std::string UnroundedSlabs(const LimitAmount& amount,
                           const abi::TableSnapshot& table);

// Returns the least amount that gives this many slabs, in both units: "24MiB
// (18.75%)".
std::string LeastAmount(uint32_t slabs, const abi::TableSnapshot& table);

// Lists the limits of a pool's engines.
std::string LimitsText(const abi::TableSnapshot& table, const Engines& engines,
                       bool color);
std::string LimitsJson(const abi::TableSnapshot& table, const Engines& engines);

// Result of `fsctl limit`: the amount as it was typed, the daemon's answer, and
// what the engine held at that moment.
struct LimitChange {
  std::string asked;
  LimitAmount amount;
  abi::EngineSnapshot engine;  // before
  abi::LimitDone done;
};
std::string LimitChangeText(const abi::TableSnapshot& table,
                            const LimitChange& change);
std::string LimitChangeJson(const abi::TableSnapshot& table,
                            const LimitChange& change);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_
