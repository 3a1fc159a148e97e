#ifndef DAEMON_FINESERVED_POOL_SERVICE_POOL_METER_H_
#define DAEMON_FINESERVED_POOL_SERVICE_POOL_METER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/contract/metrics/snapshot.h"
#include "daemon/pool/pool_state.h"

namespace fineserve::server {

// Measures facts about a pool that its machine need not know: how long slabs
// stay in each state, and how often they change hands. Watches the machine's
// decisions, in order. Pure; confined to a thread.
class PoolMeter {
 public:
  // Limit on names; engines beyond it are counted together, since any user who
  // can start an engine can choose its name.
  static constexpr size_t kMostNames = 256;

  // Begins with the pool as it is.
  PoolMeter(const slab::PoolState& pool, uint64_t now_ns);

  void Saw(const slab::SlabChange& change, uint64_t now_ns);
  // Called when the records of these engines have changed or are new.
  void SawEngines(const std::set<slab::EngineId>& engines,
                  const slab::PoolState& pool);

  metrics::DurationCounts ask_back() const { return ask_back_.Read(); }
  metrics::DurationCounts zeroing() const { return zeroing_.Read(); }
  uint64_t hand_overs() const { return hand_overs_; }
  // Returns, by name, how many engines have joined since the daemon began.
  const std::map<std::string, uint64_t>& starts() const { return starts_; }

 private:
  struct Slab {
    abi::SlabState state;
    uint64_t since_ns;
    uint32_t last_engine;  // 0: none yet
  };

  std::vector<Slab> slabs_;
  metrics::Durations ask_back_;
  metrics::Durations zeroing_;
  uint64_t hand_overs_ = 0;
  uint32_t last_engine_;
  std::map<std::string, uint64_t> starts_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_POOL_METER_H_
