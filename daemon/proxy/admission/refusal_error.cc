#include "daemon/proxy/admission/refusal_error.h"

namespace fineserve::proxy {
namespace {

bool IsLoad(Refusal refusal) {
  return refusal == Refusal::kDeadline || refusal == Refusal::kQueueFull;
}

}  // namespace

ApiError RefusalError(const Verdict& verdict) {
  const absl::string_view code = verdict::TextOf(verdict.refusal).code;
  if (verdict.refusal == Refusal::kTooLong) {
    return ClientError(400, code, verdict.why);
  }
  ApiError error = IsLoad(verdict.refusal)
                       ? RateLimitError(code, verdict.why)
                       : ServerError(503, code, verdict.why);
  // Sets a time in any case, since clients back off only if they get one. The
  // shortest that HTTP can express is a second.
  error.retry_after_ms =
      verdict.retry_after_ms != 0 ? verdict.retry_after_ms : 1000;
  error.predicted_ttft_ms = verdict.predicted_ttft_ms;
  return error;
}

}  // namespace fineserve::proxy
