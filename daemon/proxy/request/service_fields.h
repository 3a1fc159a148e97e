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
// A client with `may_say_all` is not limited; any other gets the priority and
// the SLOs that its terms allow. Unless the request says otherwise, the
// client's name is its tenant, and its terms give the priority.
absl::Status ReadServiceFields(const RequestParser& request,
                               const Client& client, bool may_say_all,
                               AdmissionRequest* asked);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_SERVICE_FIELDS_H_
