#include "daemon/scheduling/lead/plan_board.h"

#include "daemon/base/log/log.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::admission {

void PlanBoard::SetPlanned(bool planned) {
  planned_ = planned;
  if (!planned) newest_.Forget();
}

absl::Status PlanBoard::Take(const wire::PlanT& plan) {
  if (!planned_) {
    return absl::FailedPreconditionError(
        "this daemon's fleet has no [planner]: reload both daemons with the "
        "same fleet file");
  }
  const uint64_t before = newest_.number();
  const absl::Status s = newest_.Take(plan);
  refused_ += absl::IsFailedPrecondition(s);
  if (s.ok() && plan.number != before) {
    log::Info("admission: plan {} of the leader {} holds now", plan.number,
              plan.leader);
  }
  return s;
}

void PlanBoard::SetTrouble(const std::string& trouble) {
  if (trouble == trouble_) return;
  trouble_ = trouble;
  if (!trouble.empty()) log::Warning("{}", trouble);
}

}  // namespace fineserve::admission
