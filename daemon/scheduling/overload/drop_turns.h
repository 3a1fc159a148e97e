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

// The operator's setting, and the link between the GPUs. The link's figures are
// inputs: they have not been measured on a GPU of ours.
struct DropRules {
  bool on = false;
  double link_bytes_per_us = 0;  // > 0 if on
  double reread = 1;

  // Returns the reads of an engine that has dropped `dropped_bytes` of its
  // copy.
  sched::PeerReads ReadsOf(uint64_t dropped_bytes, uint64_t copy_bytes) const;
  // Returns the most that one engine drops of a copy. Each daemon knows only
  // the load of its own replica, and the other replica keeps what this one
  // drops.
  static uint64_t ShareOf(uint64_t copy_bytes) { return copy_bytes / 2; }
  // Returns the terms of an engine with such a share, in even parts. The engine
  // decides which allocations these parts are (design note 0048).
  Terms TermsOf(uint64_t copy_bytes, sched::Micros slo_ttft,
                sched::Micros slo_tpot) const;
  // Returns the loans of an engine that has dropped `dropped_bytes` of its
  // copy.
  static std::vector<Loan> LoansOf(uint64_t dropped_bytes, const Terms& terms);
};

// Decides when the engines of one GPU drop their weights and restore them.
// Pure: the caller reports what it sees, and carries out the decisions. Its
// orders may fail, and other callers may give the same orders; only what the
// caller sees next counts.
class DropTurns {
 public:
  // If drops already exist, they count as begun at `now`.
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

  // Returns the act that is due, by ActFor. None is due while the engine's
  // memory moves, nor for a while after a failed try. That pause is longer each
  // time and depends partly on `chance` (0 … 1), so that two replicas that
  // block each other do not try again at the same time.
  Act Due(size_t engine, const Seen& seen, double chance, sched::Micros now);

  // Chooses the replica whose copy replicas[0], which is `engine`, reads from
  // now on, and how many bytes of it in total. `before` is the number of equal
  // replicas that may drop first: the engine waits kYield for each of them.
  // Returns nullopt if nothing is dropped now; why() gives the reason.
  struct Choice {
    uint32_t lender = 0;
    uint64_t bytes = 0;
  };
  absl::optional<Choice> Choose(size_t engine,
                                const std::vector<Replica>& replicas,
                                const Terms& terms, uint32_t before,
                                sched::Micros now);
  static constexpr sched::Micros kYield = 500'000;
  // Sets the reason why nothing is dropped.
  void Refuse(size_t engine, Why why) { engines_[engine].why = Text(why); }
  // Due's act was ordered.
  void Ordered(size_t engine, sched::Micros now);

  // Returns why nothing is dropped, as of the last look; one line.
  const std::string& why(size_t engine) const { return engines_[engine].why; }
  // Returns since when the present bytes have been dropped. REQUIRES: some are.
  sched::Micros since(size_t engine) const { return engines_[engine].changed; }
  // True if something may be due soon without an event.
  bool waits() const;

  // Takes over from `before` the history of the engines that both have.
  void GoOnFrom(const DropTurns& before);

 private:
  // The first and the longest pause after a failed try. Heuristics.
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
