#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_JOURNAL_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_JOURNAL_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/model/assignment.h"

namespace fineserve::plan {

// A policy's opinion of one group when it placed a replica.
struct Candidate {
  Group group;
  double score = 0;  // as the journal's measure has it
};

// Why a GPU was no candidate.
struct Rejection {
  enum class Why { kPinnedElsewhere, kSibling, kNoRoom, kNoHostMemory };
  uint32_t gpu;
  Why why;
  double missing_bytes = 0;  // kNoRoom, kNoHostMemory
};

struct Decision {
  uint32_t replica;
  std::vector<Candidate> candidates;  // best first
  std::vector<Rejection> rejections;  // by GPU
  size_t more_candidates = 0;         // that are not listed
  size_t more_rejections = 0;
};

// Record of how a policy came to its placement: `fsctl plan --explain` puts it
// into words. Decisions are in the order in which they were taken.
struct Journal {
  // "μ · K_rem (tokens)".
  const char* measure = "";
  const char* order = "";  // in which the replicas came
  bool least_is_best = false;
  bool all_fit = false;  // every candidate takes the replica
  std::vector<Decision> decisions;
  // The model whose placement is explained afterwards, at a cost, if the policy
  // does not decide replica by replica; kAll: all models.
  static constexpr uint32_t kAll = UINT32_MAX;
  uint32_t only_model = kAll;

  // Limit on the candidates and rejections that are kept for a decision.
  static constexpr size_t kKept = 16;
};

// Notes the GPUs that do not take the replica, and why.
void NoteRejections(const Assignment& a, uint32_t replica, Charge charge,
                    Decision* decision);

// Keeps the best candidates in the decision, in order.
void NoteCandidates(std::vector<Candidate> candidates, bool least_is_best,
                    Decision* decision);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_JOURNAL_H_
