#ifndef TOOLS_LAB_SIM_CORE_AGENDA_H_
#define TOOLS_LAB_SIM_CORE_AGENDA_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::sim {

using sched::kNever;
using sched::Micros;

inline uint64_t Nanoseconds(Micros us) {
  return static_cast<uint64_t>(us) * 1000;
}

// Decides which actor acts next. Each of a fixed number of actors has at most
// one known time of its next action, in µs from the start of the run. If
// several act at the same time, the lowest number goes first, so the order is
// the same in every run. A winner tree: Set is O(log actors) and stops where it
// changes nothing. Confined to one thread.
class Agenda {
 public:
  explicit Agenda(uint32_t actors);

  // kNever: nothing is to be done.
  void Set(uint32_t actor, Micros at);
  Micros at(uint32_t actor) const { return times_[actor]; }

  // Returns the time of the next action; kNever if no actor has one.
  Micros next() const { return times_[winners_[1]]; }
  // Meaningless then.
  uint32_t first() const { return winners_[1]; }

 private:
  uint32_t Winner(uint32_t a, uint32_t b) const {
    return times_[b] < times_[a] ? b : a;
  }

  uint32_t leaves_;  // a power of two
  std::vector<Micros> times_;
  // Node i has the children 2i and 2i + 1; the parents of the leaves come last.
  std::vector<uint32_t> winners_;
};

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_CORE_AGENDA_H_
