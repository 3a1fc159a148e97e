#ifndef BENCH_REPLAN_MOVES_H_
#define BENCH_REPLAN_MOVES_H_

#include <cstdint>
#include <string>

namespace fineserve::bench {

// Returns the number of the plan in force, from `fsctl plan --json`; 0 if the
// text has none.
uint64_t PlanNumber(const std::string& plan);

// True if each place of that plan is off or serves, and at least one serves.
bool IsAtRest(const std::string& plan);

// Changes of the engine that serves a model.
struct Moves {
  int begun = 0;
  int undone = 0;
};

// Returns the moves of the plans with a number above `after`, from `fsctl plan
// --history --json`; none if the text is not a history.
Moves MovesIn(const std::string& history, uint64_t after);

}  // namespace fineserve::bench

#endif  // BENCH_REPLAN_MOVES_H_
