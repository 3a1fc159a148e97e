#ifndef TOOLS_UP_ORPHAN_WATCH_H_
#define TOOLS_UP_ORPHAN_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::fsctl {

// Knows which engines are orphans: those that still serve in the pool of a
// daemon that has ended while another pool of their GPU is served. Confined to
// one thread.
class OrphanWatch {
 public:
  // Finds the processes that hold a former pool of a GPU that a daemon serves.
  using FindHolders = std::function<std::vector<pid_t>()>;

  explicit OrphanWatch(FindHolders find) : find_(std::move(find)) {}

  // Watches the pools of a runtime folder.
  static OrphanWatch OfFolder(const std::string& folder);

  // Call this often; it checks every few seconds. CLOCK_MONOTONIC, ns.
  void Turn(uint64_t now_ns);

  // True if a process of this engine's process group was seen in a former pool.
  bool Has(pid_t group) const { return groups_.count(group) > 0; }

 private:
  static constexpr uint64_t kPeriodNs = 3'000'000'000;

  FindHolders find_;
  std::set<pid_t> groups_;
  uint64_t due_ns_ = 0;
};

// Chooses the orphan to drain and start again, one after another: the next one
// only once the last one serves in the present pool. So a model with several
// engines is always served, and if the new pool is too small for an engine, the
// others go on in the former pool.
class OrphanRoll {
 public:
  struct Engine {
    std::string name;
    bool is_orphan = false;
    bool serves = false;
    bool rests = false;  // it is being drained
  };

  // Call this often, with all engines. Returns the name of the engine to
  // restart now; empty if none.
  std::string Next(const std::vector<Engine>& engines);

 private:
  std::string last_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_ORPHAN_WATCH_H_
