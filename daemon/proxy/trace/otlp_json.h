#ifndef DAEMON_PROXY_TRACE_OTLP_JSON_H_
#define DAEMON_PROXY_TRACE_OTLP_JSON_H_

#include <memory>
#include <string>
#include <vector>

#include "daemon/proxy/http/random_hex.h"
#include "daemon/proxy/record/life.h"

namespace fineserve::proxy {

// The body of a POST to /v1/traces (opentelemetry.io/docs/specs/otlp, "JSON
// Protobuf Encoding") and how many spans it has. A request gives these:
//
//   METHOD PATH          of the client's span, or the first of the trace
//     deciding           from the question to admission to its verdict
//       waiting          the part that the daemon's queue took, if any
//     relaying           one engine's part; what the engine does is below
struct OtlpBatch {
  std::string body;
  size_t spans = 0;
};
OtlpBatch OtlpJson(const std::vector<std::shared_ptr<const Life>>& lives,
                   RandomHex* random);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_TRACE_OTLP_JSON_H_
