#include "bench/micro/timed_move.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/move_link.h"
#include "daemon/contract/abi/table_reader.h"

namespace fineserve::bench {
namespace {

constexpr absl::Duration kMovePatience = absl::Minutes(2);

}  // namespace

absl::StatusOr<TimedMove> MoveTimed(const abi::ObserverLink& link,
                                    const std::string& engine, abi::Place to) {
  const auto table = abi::ReadTable(link.table.get());
  if (!table.ok()) return table.status();
  const auto found =
      std::find_if(table->engines.begin(), table->engines.end(),
                   [&](const auto& e) { return e.name == engine; });
  if (found == table->engines.end()) {
    return absl::NotFoundError(absl::StrCat("no engine ", engine));
  }
  const RealClock clock;
  const uint64_t began_ns = clock.NowNs();
  const auto moved = abi::MoveEngine(link, found->id, to, kMovePatience);
  if (!moved.ok()) return moved.status();
  return TimedMove{1e-9 * static_cast<double>(clock.NowNs() - began_ns),
                   moved->bytes};
}

}  // namespace fineserve::bench
