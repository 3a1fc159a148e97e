#ifndef DAEMON_PROXY_EXCHANGE_SERVICE_H_
#define DAEMON_PROXY_EXCHANGE_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "daemon/clock/clock.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/exchange/engine_pool.h"
#include "daemon/proxy/exchange/metrics.h"
#include "daemon/proxy/request/request_id.h"
#include "daemon/proxy/request/routes.h"
#include "daemon/proxy/request/token_estimator.h"

namespace fineserve::proxy {

class Connection;

// What a client may take of us.
struct Limits {
  size_t header_bytes = 32 << 10;
  uint64_t body_bytes = 32 << 20;
  size_t connections = 20'000;
  uint32_t idle_s = 75;     // between two requests
  uint32_t receive_s = 30;  // for a header, and for each piece of a body
  uint32_t stall_s = 60;    // that a client takes nothing of its answer
  uint32_t linger_s = 10;   // for what it still sends after a refusal
  uint32_t connect_s = 5;   // for an engine to accept
  // For an engine to count a prompt's tokens: one that takes longer than SLOs
  // are does not answer in time either.
  uint32_t count_s = 1;
};

// What all connections of a proxy share. Confined to the proxy's thread; lives
// longer than they.
struct Service {
  const Clock* clock;
  Limits limits;
  std::shared_ptr<const Routes> routes;
  Admission* admission;
  TokenEstimator estimator;
  Metrics metrics;
  RequestIds request_ids;
  EnginePool engines;
  bool draining = false;
  uint64_t last_request = 0;  // admission's id of the newest one
  uint64_t turn = 0;          // of what is forwarded without admission
  // Models of whom it was told that a prompt was not counted.
  absl::flat_hash_set<std::string> uncounted;
  absl::flat_hash_set<Connection*> connections;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_EXCHANGE_SERVICE_H_
