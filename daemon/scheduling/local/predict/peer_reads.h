#ifndef DAEMON_SCHEDULING_LOCAL_PREDICT_PEER_READS_H_
#define DAEMON_SCHEDULING_LOCAL_PREDICT_PEER_READS_H_

#include <algorithm>
#include <cmath>

namespace fineserve::sched {

// Number of token rows in a tile of a GEMM's output.
inline constexpr double kRowBlock = 128;

// Weights that an engine reads from another GPU in each of its steps, since it
// has dropped its own copy (design note 0047). A kernel reads its operands as
// it computes, so these layers take as long as the slower of two things: their
// part of the step's work, or the link. So a step becomes longer by the reads
// that its work does not hide.
struct PeerReads {
  double link_us = 0;  // that the link takes for these bytes once
  double work = 0;     // share of a step's work that they take part in; 0 … 1
  // The largest number of times that a step reads a byte over the link; at
  // least 1. A GEMM reads each of its weights once for each row block; only a
  // GPU that caches a peer's lines reads them once. An input: it has not been
  // measured on a GPU yet.
  double reread = 1;

  bool operator==(const PeerReads&) const = default;

  // Returns the time that the reads add to a step. Never decreases with more
  // tokens if the work that each token adds is counted as well.
  double AddedUs(double work_us, double tokens) const {
    if (link_us == 0) return 0;
    const double blocks = std::ceil(tokens / kRowBlock);
    const double times = std::max(1.0, std::min(reread, blocks));
    return std::max(0.0, times * link_us - work * work_us);
  }
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_PREDICT_PEER_READS_H_
