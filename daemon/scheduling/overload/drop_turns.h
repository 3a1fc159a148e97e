#ifndef DAEMON_SCHEDULING_OVERLOAD_DROP_TURNS_H_
#define DAEMON_SCHEDULING_OVERLOAD_DROP_TURNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/scheduling/local/predict/ids.h"
#include "daemon/scheduling/local/predict/peer_reads.h"
#include "daemon/scheduling/overload/drop_policy.h"

namespace fineserve::overload {

// The operator's word, and the link between the GPUs. Inputs: no GPU of ours
// has measured them.
struct DropRules {
  bool on = false;
  double link_bytes_per_us = 0;  // > 0 if on
  double reread = 1;

  // The reads of an engine that has dropped so many bytes of its copy.
  sched::PeerReads ReadsOf(uint64_t dropped_bytes, uint64_t copy_bytes) const;
  // One engine drops so much of a copy at most. The daemon of each replica
  // knows the load of its own alone, and what one drops the other one keeps.
  static uint64_t ShareOf(uint64_t copy_bytes) { return copy_bytes / 2; }
  // The terms of an engine with such a share, in even parts: which allocations
  // they are the engine decides (design note 0048).
  Terms TermsOf(uint64_t copy_bytes, sched::Micros slo_ttft,
                sched::Micros slo_tpot) const;
  // The loans of one that has dropped so many bytes of it.
  static std::vector<Loan> LoansOf(uint64_t dropped_bytes, const Terms& terms);
};

// The turns at which engines of one GPU drop their weights and restore them.
// Pure: the caller says what it sees, and carries out what is decided. Its
// orders may fail, and others may give the same ones; only what the caller sees
// next counts.
class DropTurns {
 public:
  // `now`: drops that are there already count as begun then.
  DropTurns(const DropRules& rules, std::vector<std::string> engines,
            sched::Micros now);

  struct Seen {
    KvLoad load;
    bool moves = false;        // its memory is on its way
    std::string trouble = {};  // why its last drop or restoration failed
    uint64_t share = 0;        // bytes that it may drop; 0: not known
  };

  bool on() const { return rules_.on; }
  const DropRules& rules() const { return rules_; }

  // The act that is due, by ActFor. Neither while its memory moves nor, after
  // a try that failed, for a while, which is longer each time and partly
  // `chance` (0 … 1): two replicas that are in each other's way part.
  Act Due(size_t engine, const Seen& seen, double chance, sched::Micros now);

  // Whose copy replicas[0], which is `engine`, reads from now on, and how many
  // bytes of it in all. `before`: equal replicas that may drop and have the
  // first turn: it waits for kYield for each of them. nullopt: nothing now, for
  // the reason that why() gives.
  struct Choice {
    uint32_t lender = 0;
    uint64_t bytes = 0;
  };
  absl::optional<Choice> Choose(size_t engine,
                                const std::vector<Replica>& replicas,
                                const Terms& terms, uint32_t before,
                                sched::Micros now);
  static constexpr sched::Micros kYield = 500'000;
  // Nothing is dropped for this reason.
  void Refuse(size_t engine, Why why) { engines_[engine].why = Text(why); }
  // Due's act was ordered.
  void Ordered(size_t engine, sched::Micros now);

  // Why nothing is dropped, as of the last look; one line.
  const std::string& why(size_t engine) const { return engines_[engine].why; }
  // Since when what is dropped now is; only while something is.
  sched::Micros since(size_t engine) const { return engines_[engine].changed; }
  // True if something may be due soon without an event.
  bool waits() const;

  // Goes on with the past of those engines that `before` has, too.
  void GoOnFrom(const DropTurns& before);

 private:
  // After a try that failed: the first, and the longest. Heuristics.
  static constexpr sched::Micros kFirstPause = 2'000'000;
  static constexpr sched::Micros kLongestPause = 64'000'000;
  static constexpr sched::Micros kNever = -1;

  struct Engine {
    std::string name;
    std::string why;
    uint64_t dropped = 0;         // bytes, when it was last seen
    sched::Micros changed = 0;    // these
    sched::Micros asks = kNever;  // to drop, since
    bool tries = false;           // what was ordered has not ended
    sched::Micros pause = 0;
    sched::Micros pause_ends = 0;
  };

  const DropRules rules_;
  std::vector<Engine> engines_;
};

}  // namespace fineserve::overload

#endif  // DAEMON_SCHEDULING_OVERLOAD_DROP_TURNS_H_
