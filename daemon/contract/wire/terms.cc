#include "daemon/contract/wire/terms.h"

#include <algorithm>

#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

template <typename Table>
void SetSizes(const verdict::Terms& terms, Table* table) {
  table->prompt_tokens = terms.prompt_tokens;
  table->max_tokens = terms.max_tokens;
  table->tenant = terms.tenant;
}

template <typename Table>
verdict::Terms SizesOf(const Table& table) {
  verdict::Terms terms;
  terms.prompt_tokens = std::max(table.prompt_tokens, 1u);
  terms.max_tokens = table.max_tokens;
  terms.tenant = table.tenant;
  return terms;
}

}  // namespace

int64_t Duration(uint64_t us) {
  return static_cast<int64_t>(std::min(us, uint64_t{1} << 50));
}

void SetTerms(const verdict::Terms& terms, RunningRequestT* running) {
  SetSizes(terms, running);
}

verdict::Terms TermsOf(const RunningRequestT& running) {
  return SizesOf(running);
}

void SetTerms(const verdict::Terms& terms, SubmitT* submit) {
  SetSizes(terms, submit);
  submit->slo_ttft_us = static_cast<uint64_t>(terms.slo_ttft_us);
  submit->slo_tpot_us = static_cast<uint64_t>(terms.slo_tpot_us);
  submit->priority = terms.priority;
  submit->degrade_ok = terms.degrade_ok;
}

verdict::Terms TermsOf(const SubmitT& submit) {
  verdict::Terms terms = SizesOf(submit);
  terms.slo_ttft_us = Duration(submit.slo_ttft_us);
  terms.slo_tpot_us = Duration(submit.slo_tpot_us);
  terms.priority = submit.priority;
  terms.degrade_ok = submit.degrade_ok;
  return terms;
}

}  // namespace fineserve::wire
