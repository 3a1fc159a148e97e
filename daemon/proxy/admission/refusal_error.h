#ifndef DAEMON_PROXY_ADMISSION_REFUSAL_ERROR_H_
#define DAEMON_PROXY_ADMISSION_REFUSAL_ERROR_H_

#include "daemon/base/http/api_error.h"
#include "daemon/proxy/admission/admission.h"

namespace fineserve::proxy {

// Returns the error that a client gets for a refusing verdict: 400 if the
// request can never be served, 429 if the load is too high, 503 if no engine
// serves or no scheduler decides.
ApiError RefusalError(const Verdict& verdict);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_REFUSAL_ERROR_H_
