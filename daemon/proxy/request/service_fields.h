#ifndef DAEMON_PROXY_REQUEST_SERVICE_FIELDS_H_
#define DAEMON_PROXY_REQUEST_SERVICE_FIELDS_H_

#include "absl/status/status.h"
#include "daemon/base/http/request_parser.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/keys/client.h"

namespace fineserve::proxy {

// Reads into `asked` what the client's header says about the service it wants,
// by llm-d's names where llm-d has them:
//
//   x-slo-ttft-ms, x-slo-tpot-ms     milliseconds, more than 0
//   x-gateway-inference-fairness-id  tenant (x-llm-d-inference-fairness-id)
//   x-fineserve-priority             whole number, higher goes first
//   x-fineserve-degrade              1: late is better than refused
//
// InvalidArgument, with one line for the client, for a bad value or one beyond
// its terms.
//
// A client that `may_say_all` of it is not limited; of any other the priority
// and the SLOs count that its terms allow. Its name is its tenant, and its
// priority is its terms', unless it says otherwise.
absl::Status ReadServiceFields(const RequestParser& request,
                               const Client& client, bool may_say_all,
                               AdmissionRequest* asked);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_SERVICE_FIELDS_H_
