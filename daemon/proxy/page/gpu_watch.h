#ifndef DAEMON_PROXY_PAGE_GPU_WATCH_H_
#define DAEMON_PROXY_PAGE_GPU_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"

namespace fineserve::proxy {

// One GPU's pool at one moment.
struct GpuSight {
  std::string name;      // "GPU-8f0c…": of the socket
  bool answers = false;  // its daemon holds our connection
  std::string why;       // what is wrong, in one line; empty: nothing
  int64_t since_ms = 0;  // UNIX time from which `answers` has been so
  // The table as last read. A daemon that has gone leaves the table that it
  // wrote last.
  absl::optional<abi::TableSnapshot> table;
};

// Bytes of the pool that have memory behind them.
uint64_t PresentBytes(const abi::TableSnapshot& table);

// Observes the slab tables of all daemons of a runtime folder, each over a
// connection that stays open: its end shows that the daemon is gone, and the
// table can still be read after that. A daemon that comes back is found again
// within kRelookNs.
//
// Not thread-safe. Look waits up to kPatience for each daemon that does not
// answer, so it must not run on a thread that others wait for.
class GpuWatch {
 public:
  static constexpr size_t kMostGpus = 64;
  static constexpr uint64_t kRelookNs = 1'000'000'000;
  static constexpr absl::Duration kPatience = absl::Milliseconds(300);

  // `clock` outlives it.
  GpuWatch(std::string folder, const Clock* clock)
      : folder_(std::move(folder)), clock_(clock) {}

  // Reads every table now. By name.
  std::vector<GpuSight> Look();

 private:
  struct Watched {
    std::string socket;
    GpuSight sight;
    absl::optional<abi::ObserverLink> link;  // while the daemon answers
    absl::optional<abi::TableReader> reader;
  };

  void FindMore();
  static void Connect(Watched* gpu);
  static void Read(Watched* gpu);

  const std::string folder_;
  const Clock* const clock_;
  std::map<std::string, Watched> gpus_;  // by name
  uint64_t relook_ns_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_GPU_WATCH_H_
